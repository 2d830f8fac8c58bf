// Places objects. Objects that never live together share the slots of a region.
#include "stingygen.h"

#include <algorithm>

namespace {

// Objects of a line or more begin at a line; smaller ones share lines and never straddle two.
uint64_t slot_of(const Object &object) {
    uint64_t bytes = round_up(object.bytes, std::max<uint64_t>(16, object.align));
    if (bytes > LINE)
        return round_up(bytes, LINE);
    return bytes > 32 ? 64 : bytes > 16 ? 32 : 16;
}

uint64_t cost(const Region &region) {
    return region.slot_bytes * region.per_request;
}

// Greedy colouring of the graph of objects that live together, large objects first. An object joins a region if that
// saves memory.
std::vector<Region> colour(const Program &program, const Options &options) {
    std::vector<size_t> order(program.objects.size());
    for (size_t i = 0; i < order.size(); i++)
        order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return slot_of(program.objects[a]) > slot_of(program.objects[b]); });
    std::vector<Region> regions;
    for (size_t i : order) {
        const Object &object = program.objects[i];
        Region *best = nullptr;
        uint64_t slot_bytes = slot_of(object), best_growth = slot_bytes * object.per_request;
        bool is_scarce = options.slots.count(object.id) > 0;
        for (Region &region : regions) {
            bool is_free = !is_scarce && !region.is_scarce && !object.is_request &&
                           std::none_of(region.objects.begin(), region.objects.end(), [&](size_t other) {
                               return program.objects[other].is_request || lives_with(object, program.objects[other]);
                           });
            Region joined = region;
            joined.slot_bytes = std::max(joined.slot_bytes, slot_bytes);
            joined.per_request = std::max(joined.per_request, object.per_request);
            if (is_free && cost(joined) - cost(region) < best_growth) {
                best_growth = cost(joined) - cost(region);
                best = &region;
            }
        }
        if (!best) {
            regions.emplace_back();
            best = &regions.back();
            best->is_scarce = is_scarce;
            best->slots = is_scarce ? options.slots.at(object.id) : 0;
        }
        best->objects.push_back(i);
        best->slot_bytes = std::max(best->slot_bytes, slot_bytes);
        best->per_request = std::max(best->per_request, object.per_request);
    }
    for (Region &region : regions) {
        std::sort(region.objects.begin(), region.objects.end());
        for (size_t i : region.objects)
            region.name += (region.name.empty() ? "" : ", ") + program.objects[i].id;
    }
    std::sort(regions.begin(), regions.end(), [](const Region &a, const Region &b) { return a.objects < b.objects; });
    return regions;
}

void place_regions(const Program &program, const Options &options, Layout &layout, uint64_t room_bytes) {
    layout.regions = colour(program, options);
    layout.region_of.resize(program.objects.size());
    uint64_t scarce_bytes = 0;
    for (size_t r = 0; r < layout.regions.size(); r++) {
        const Region &region = layout.regions[r];
        for (size_t object : region.objects)
            layout.region_of[object] = r;
        if (region.is_scarce)
            scarce_bytes += round_up(region.slots * region.slot_bytes, LINE);
        else
            layout.request_bytes += cost(region);
    }
    // The largest possible waste by aligning the beginnings of regions.
    scarce_bytes += layout.regions.size() * LINE;
    if (layout.request_bytes == 0)
        throw Refusal("all objects have --slots, but one without it must show how many requests fit");
    uint64_t fit = scarce_bytes < room_bytes ? (room_bytes - scarce_bytes) / layout.request_bytes : 0;
    layout.requests = (uint32_t)std::min<uint64_t>(options.requests ? options.requests : fit, fit);
    uint64_t at = layout.stack_bytes + layout.globals_bytes;
    for (Region &region : layout.regions) {
        if (!region.is_scarce)
            region.slots = layout.requests * region.per_request;
        region.offset_bytes = at = round_up(at, LINE);
        at += region.slots * region.slot_bytes;
        if (region.slots > 65535)
            throw Refusal("more than 65535 slots of " + region.name + "; use --requests");
    }
}

// Returns the stack's part of the slab. If memwalk has a bound for every stage, this is the deepest one's, unless it
// takes most of the slab from the requests; deeper frames use the low slab. Without a bound the thread keeps its own
// stack.
uint64_t stack_part(Program &program, const Options &options, uint64_t cache_bytes) {
    if (options.stack_bytes)
        return round_up(*options.stack_bytes, 4096);
    uint64_t deepest = 0;
    for (const Stage &stage : program.stages) {
        deepest = std::max(deepest, stage.stack_bytes);
        if (!stage.is_stack_bound)
            return 0;
    }
    uint64_t part = round_up(deepest, 4096);
    if (part <= cache_bytes / 4)
        return part;
    program.warnings.push_back(
        "the stack (" + std::to_string(deepest) +
        " bytes) would take more than a quarter of the cache slab, so it is left out of it (--stack SIZE)");
    return 0;
}

} // namespace

Layout place(Program &program, const Options &options) {
    Layout layout;
    layout.cache_bytes = (uint64_t)((double)options.l2_bytes * options.share) / 4096 * 4096;
    layout.stack_bytes = stack_part(program, options, layout.cache_bytes);
    // A large table is never touched as a whole.
    layout.globals_bytes = round_up(std::min(program.globals_bytes, layout.cache_bytes / 8), LINE);
    uint64_t taken = layout.stack_bytes + layout.globals_bytes;
    if (taken >= layout.cache_bytes)
        throw Refusal("stack (" + std::to_string(layout.stack_bytes) + " bytes) and globals (" +
                      std::to_string(layout.globals_bytes) + ") leave nothing of a cache slab of " +
                      std::to_string(layout.cache_bytes) + "; lower --stack, or raise --l2 or --share");
    uint64_t room_bytes = layout.cache_bytes - taken;
    place_regions(program, options, layout, room_bytes);
    for (const Object &object : program.objects) {
        uint64_t bytes = slot_of(object) * object.per_request;
        bool is_scarce = options.slots.count(object.id) > 0;
        if (object.is_bounded && object.bytes_from == "analysis" && !is_scarce && bytes * 4 >= layout.request_bytes)
            program.warnings.push_back(object.id + ": its largest size is reserved for every request, " +
                                       std::to_string(bytes) + " of " + std::to_string(layout.request_bytes) +
                                       " bytes; if it is usually smaller, say typical_bytes in " +
                                       "stingy.toml, or --object " + object.id +
                                       "=BYTES, --profile FILE; if few requests have it, --slots " + object.id + "=N");
    }
    if (layout.requests == 0)
        throw Refusal("one request needs " + std::to_string(layout.request_bytes) + " bytes and the cache slab has " +
                      std::to_string(room_bytes) +
                      " for requests; raise --l2 or --share, or lower sizes (--object, --profile)");
    return layout;
}
