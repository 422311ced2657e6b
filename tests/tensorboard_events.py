"""What a trainer has written for TensorBoard."""

from pathlib import Path


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the steps and values of each curve below a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves = {}
    for file in sorted(folder.rglob("events.out.tfevents.*")):
        events = EventAccumulator(str(file)).Reload()
        for name in events.Tags()["scalars"]:
            curves[name] = [(event.step, event.value) for event in events.Scalars(name)]
    return curves
