# SPDX-License-Identifier: Apache-2.0
"""Replays a memory snapshot, for test_memory_viz.sh: no byte is taken twice, and what stands at the
end is what the segments say.  Prints the most bytes in use and the tensors of each device."""
import pickle
import sys


class Refuse(pickle.Unpickler):
    """A snapshot needs no class: the viewer has none."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def replay(events, segment):
    live, used, most, names = {}, 0, 0, set()
    assert events[0]["action"] == "segment_alloc"
    assert events[0]["addr"] == segment["address"] and events[0]["size"] == segment["total_size"]
    end = segment["address"] + segment["total_size"]
    for e in events[1:]:
        at, size = e["addr"], e["size"]
        names.add(e["frames"][0]["name"])
        if e["action"] == "alloc":
            assert segment["address"] <= at and at + size <= end, e
            assert all(at + size <= a or a + n <= at for a, n in live.items()), e
            live[at] = size
            used += size
            most = max(most, used)
        elif e["action"] == "free_requested":
            assert live[at] == size, e
        else:
            assert e["action"] == "free_completed" and live.pop(at) == size, e
            used -= size
    return live, most, names


def main(path):
    with open(path, "rb") as f:
        snapshot = Refuse(f).load()
    segments = {s["device"]: s for s in snapshot["segments"]}
    for device, events in enumerate(snapshot["device_traces"]):
        if not events:
            continue
        segment = segments[device]
        live, most, names = replay(events, segment)
        at, standing = segment["address"], {}
        for block in segment["blocks"]:
            assert block["address"] == at, block
            at += block["size"]
            if block["state"] == "active_allocated":
                standing[block["address"]] = block["size"]
        assert at == segment["address"] + segment["total_size"]
        assert standing == live, "other blocks at the end"
        assert sum(live.values()) == segment["allocated_size"]
        print("device", device, "most", most, "of", segment["total_size"])
        for name in sorted(names):
            print("device", device, "has", name)


main(sys.argv[1])
