/* Everything a plugin needs. */
#ifndef GALLEY_GALLEY_H
#define GALLEY_GALLEY_H

#include "galley/abi.h"
#include "galley/checksum.h"
#include "galley/claim.h"
#include "galley/device.h"
#include "galley/entry.h"
#include "galley/files.h"
#include "galley/format.h"
#include "galley/graph.h"
#include "galley/kernel.h"
#include "galley/observer.h"
#include "galley/op.h"
#include "galley/philox.h"
#include "galley/ranks.h"
#include "galley/rewrite.h"
#include "galley/saved.h"
#include "galley/source.h"
#include "galley/tensor.h"
#include "galley/update.h"

#endif
