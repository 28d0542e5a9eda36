/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "work-observer.h"

struct work_observer work_observer;
