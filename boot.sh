#! /bin/sh
# SPDX-License-Identifier: Apache-2.0
# Generates configure and Makefile.in of the superbuild.
cd "$(dirname "$0")" && autoreconf --install --force
