# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic.  'make prepare' includes this file at the end of
# OVS's Makefile.am, so each list below extends one of OVS's.  A new file is one
# line here: at its place in the alphabet, with the path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += patches/tool/automake.mk

# Autotest files of tests/testsuite.
TESTSUITE_AT += \
	tests/cost-report.at \
	tests/cost-stress.at \
	tests/ovs-cost.at

# Documentation.
DOC_SOURCE += \
	Documentation/intro/install/ovs-cost.rst \
	Documentation/topics/cost-json.rst \
	Documentation/topics/ovs-cost.rst

# The command ovs-cost, and the Python package that it is made of.
bin_SCRIPTS += utilities/ovs-cost
completion_SCRIPTS += utilities/ovs-cost-bashcomp.bash
CLEANFILES += utilities/ovs-cost
RST_MANPAGES += ovs-cost.8.rst
ovs_pyfiles += \
	python/ovs/cost/__init__.py \
	python/ovs/cost/charts.py \
	python/ovs/cost/compare.py \
	python/ovs/cost/distribution.py \
	python/ovs/cost/html.py \
	python/ovs/cost/main.py \
	python/ovs/cost/model.py \
	python/ovs/cost/otlp.py \
	python/ovs/cost/picture.py \
	python/ovs/cost/record.py \
	python/ovs/cost/recording.py \
	python/ovs/cost/svg.py \
	python/ovs/cost/target.py \
	python/ovs/cost/text.py \
	python/ovs/cost/top.py
FLAKE8_PYFILES += \
	tests/cost-schema.py \
	tests/cost-stress.py \
	tests/ovs-cost-fake.py \
	tests/test-ovs-cost.py \
	utilities/ovs-cost.in
EXTRA_DIST += \
	Documentation/ref/ovs-cost.8.rst \
	Documentation/topics/ovs-cost.png \
	tests/cost-stress.py \
	tests/ovs-cost-fake.py \
	tests/test-ovs-cost.py \
	tests/tsan-suppressions \
	utilities/ovs-cost.in \
	utilities/ovs-cost-bashcomp.bash

# The form of JSON reports, and the test of it.
EXTRA_DIST += \
	python/ovs/cost/schema-1.json \
	tests/cost-schema.py
