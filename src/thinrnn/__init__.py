"""thinrnn makes recurrent networks thin: it learns which neurons they need and removes the rest."""

__version__ = "0.1.0"

# Loaded on first use, because torch takes a second to import and `thinrnn --help` needs none of it.
_HOMES = {
    "_calibration.distill": ["distill", "distillation_loss"],
    "_calibration.neuron_scores": ["neuron_scores"],
    "_calibration.prune": ["prune"],
    "_calibration.report": ["Agreement", "PruningReport", "ReaderFit", "pruning_report"],
    "_calibration.sweep": ["Sweep", "Swept", "sweep"],
    "_discovery.find": ["find_groups"],
    "_layers.base": ["Layer"],
    "_layers.registry": ["register_layer"],
    "_gates.arm": ["ARM", "arm_loss"],
    "_gates.attach": ["attach_", "detach_", "gates", "param_groups"],
    "_gates.estimators": ["Estimator", "Fixed", "HardConcrete"],
    "_gates.gate": ["Gate"],
    "_penalties.group_lasso": ["GroupLasso"],
    "_penalties.l0": ["L0"],
    "_penalties.magnitude": ["magnitude_"],
    "_penalties.target": ["Target"],
    "_surgery.compact": ["compact"],
    "_surgery.count": ["Count", "ModuleCount", "count"],
    "_surgery.provenance": ["kept_inputs"],
    "_surgery.save": ["load_", "save"],
    "_surgery.shrink": ["cut_", "kept_neurons", "shrink_"],
    "_surgery.verify": ["verify"],
    "_training.pruner": ["Pruner"],
    "c.export": ["CExport", "export_c"],
    "edge.executorch": ["export_executorch"],
    "edge.export": ["EdgeExport"],
    "edge.litert": ["export_litert"],
    "errors": [
        "CalibrationError",
        "ExampleError",
        "ExportError",
        "FolderError",
        "GateError",
        "HardCodedSizeError",
        "LayerError",
        "MissingExtraError",
        "NoRecurrentLayerError",
        "PlanError",
        "RunError",
        "StateError",
        "TargetError",
        "ThinRNNError",
        "VerifyError",
    ],
    "latency": ["Latency"],
    "nn.rhn": ["RHN"],
    "nn.rnn_stack": ["RNNStack"],
    "nn.states": ["States"],
    "onnx.top_k": ["top_k_onnx"],
    "onnx.export": ["Export", "export_onnx"],
    "onnx.quantize": ["Quantized", "QuantizedWeight", "quantize_onnx"],
    "group": ["Group", "NormSlice", "SizeAttribute", "Slice", "State"],
    "plan": ["Plan", "Refusal"],
    "timing": ["Benchmark", "Timing", "benchmark"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [*_HOME_OF, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'thinrnn' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"thinrnn.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
