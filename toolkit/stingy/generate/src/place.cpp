// Places objects. Objects that never live together share: a region's slots (pool), or bytes of the frame (frame).
#include "stingygen.h"

#include <algorithm>

namespace {

// Objects of a line or more begin at a line; smaller ones share lines, and never straddle two.
uint64_t place_of(const Object &object) {
    uint64_t bytes = round_up(object.bytes, std::max<uint64_t>(16, object.align));
    if (bytes > LINE)
        return round_up(bytes, LINE);
    return bytes > 32 ? 64 : bytes > 16 ? 32 : 16;
}

uint64_t cost(const Region &region) {
    return region.slot_bytes * region.per_request;
}

// Greedy colouring of the graph of objects that live together, large objects first; an object joins a region where that
// saves memory.
std::vector<Region> colour(const Program &program, const Layout &layout, const Options &options) {
    std::vector<size_t> order(program.objects.size());
    for (size_t i = 0; i < order.size(); i++)
        order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return layout.place_bytes[a] > layout.place_bytes[b]; });
    std::vector<Region> regions;
    for (size_t i : order) {
        const Object &object = program.objects[i];
        Region *best = nullptr;
        uint64_t best_growth = layout.place_bytes[i] * object.per_request;
        bool is_scarce = options.slots.count(object.id) > 0;
        for (Region &region : regions) {
            bool is_free = !is_scarce && !region.is_scarce && !object.is_request &&
                           std::none_of(region.objects.begin(), region.objects.end(), [&](size_t other) {
                               return program.objects[other].is_request || lives_with(object, program.objects[other]);
                           });
            Region joined = region;
            joined.slot_bytes = std::max(joined.slot_bytes, layout.place_bytes[i]);
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
        best->slot_bytes = std::max(best->slot_bytes, layout.place_bytes[i]);
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

void place_pool(const Program &program, const Options &options, Layout &layout, uint64_t room_bytes) {
    layout.regions = colour(program, layout, options);
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
    // The most that the alignment of the regions' beginnings wastes.
    scarce_bytes += layout.regions.size() * LINE;
    if (layout.request_bytes == 0)
        throw Refusal("all objects have --slots; one without is needed, it says how many requests fit");
    uint64_t fit = scarce_bytes < room_bytes ? (room_bytes - scarce_bytes) / layout.request_bytes : 0;
    layout.requests = (uint32_t)std::min<uint64_t>(options.requests ? options.requests : fit, fit);
    uint64_t at = layout.stack_bytes + options.globals_bytes;
    for (Region &region : layout.regions) {
        if (!region.is_scarce)
            region.slots = layout.requests * region.per_request;
        region.offset_bytes = at = round_up(at, LINE);
        at += region.slots * region.slot_bytes;
        if (region.slots > 65535)
            throw Refusal("more than 65535 slots of " + region.name + "; use --requests");
    }
}

// First fit by size: the lowest place where no object lies that lives together with this one.
void place_frame(const Program &program, const Options &options, Layout &layout, uint64_t room_bytes) {
    size_t requests = 0, count = 0;
    for (const Object &object : program.objects) {
        requests += object.is_request;
        count += object.per_request;
    }
    if (requests != 1)
        throw Refusal("a frame is one request's, and there are " + std::to_string(requests) +
                      " request structures; use --layout pool");
    if (count > 64)
        throw Refusal("a frame has at most 64 places, and a request holds " + std::to_string(count) +
                      " objects; use --layout pool");
    if (!options.slots.empty())
        throw Refusal("--slots is for --layout pool: a frame holds a whole request");
    std::vector<size_t> order;
    for (size_t i = 0; i < program.objects.size(); i++)
        order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        if (program.objects[a].is_request != program.objects[b].is_request)
            return program.objects[a].is_request;
        return layout.place_bytes[a] > layout.place_bytes[b];
    });
    std::vector<uint64_t> begin(program.objects.size());
    std::vector<size_t> placed;
    auto bytes = [&](size_t i) { return layout.place_bytes[i] * program.objects[i].per_request; };
    uint64_t frame = 0;
    for (size_t i : order) {
        // A request structure keeps its beginning for itself: it is prefetched, and entered by its address.
        auto meets = [&](size_t other) {
            return program.objects[other].is_request || lives_with(program.objects[i], program.objects[other]);
        };
        uint64_t step = std::min<uint64_t>(layout.place_bytes[i], LINE);
        for (bool is_moved = true; is_moved;) {
            is_moved = false;
            for (size_t other : placed)
                if (meets(other) && begin[i] < begin[other] + bytes(other) && begin[other] < begin[i] + bytes(i)) {
                    begin[i] = round_up(begin[other] + bytes(other), step);
                    is_moved = true;
                }
        }
        placed.push_back(i);
        frame = std::max(frame, begin[i] + bytes(i));
    }
    for (size_t i = 0; i < program.objects.size(); i++) {
        layout.first_place.push_back(layout.places.size());
        for (uint32_t n = 0; n < program.objects[i].per_request; n++)
            layout.places.push_back({i, begin[i] + n * layout.place_bytes[i], 0});
    }
    for (Place &a : layout.places)
        for (size_t j = 0; j < layout.places.size(); j++) {
            const Place &b = layout.places[j];
            if (a.offset_bytes < b.offset_bytes + layout.place_bytes[b.object] &&
                b.offset_bytes < a.offset_bytes + layout.place_bytes[a.object])
                a.overlaps |= UINT64_C(1) << j;
        }
    layout.request_bytes = round_up(frame, LINE);
    uint64_t fit = room_bytes / layout.request_bytes;
    layout.requests = (uint32_t)std::min<uint64_t>(options.requests ? options.requests : fit, fit);
    if (layout.requests > 65535)
        throw Refusal("more than 65535 frames; use --requests");
    Region region;
    region.name = "frames";
    region.slot_bytes = layout.request_bytes;
    region.slots = layout.requests;
    region.per_request = 1;
    region.offset_bytes = round_up(layout.stack_bytes + options.globals_bytes, LINE);
    layout.regions.push_back(region);
    layout.region_of.assign(program.objects.size(), 0);
}

} // namespace

Layout place(const Program &program, const Options &options) {
    Layout layout;
    layout.cache_bytes = (uint64_t)((double)options.l2_bytes * options.share) / 4096 * 4096;
    layout.stack_bytes = round_up(options.stack_bytes, 4096);
    for (const Object &object : program.objects)
        layout.place_bytes.push_back(place_of(object));
    uint64_t taken = round_up(layout.stack_bytes + options.globals_bytes, LINE);
    if (taken && taken >= layout.cache_bytes)
        throw Refusal("stack (" + std::to_string(layout.stack_bytes) + " bytes) and globals (" +
                      std::to_string(options.globals_bytes) + ") leave nothing of a cache slab of " +
                      std::to_string(layout.cache_bytes) + "; lower --stack or --globals, or raise --l2 or --share");
    uint64_t room_bytes = layout.cache_bytes - taken;
    if (options.is_frame)
        place_frame(program, options, layout, room_bytes);
    else
        place_pool(program, options, layout, room_bytes);
    if (layout.requests == 0)
        throw Refusal("one request needs " + std::to_string(layout.request_bytes) + " bytes and the cache slab has " +
                      std::to_string(room_bytes) +
                      " for requests; raise --l2 or --share, or lower sizes (--object, --profile)");
    return layout;
}
