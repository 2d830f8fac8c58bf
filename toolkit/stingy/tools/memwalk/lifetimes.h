// Finds the stages in which each object may exist, and whether every path frees it.
#pragma once
#include "memwalk/objects.h"

namespace stingy {

/// Fills `live` and `is_freed_on_every_path`. An object survives an edge unless every path to the queueing of the
/// request frees it, before or after; null in the field that holds it counts as freed. Only objects that exist once
/// per request can be shown to be freed.
void find_lifetimes(const Calls &calls, const StageGraph &graph, Objects &objects);

} // namespace stingy
