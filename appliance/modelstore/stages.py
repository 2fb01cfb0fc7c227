"""The stages of an import as a program: `python -m appliance.modelstore.stages STAGE`.

Everything that touches an uploaded file runs here, in a process of its own with limits (`modelstore.child` starts it). The stages are

| stage | takes | gives | what it does |
| --- | --- | --- | --- |
| unpack | UnpackOrder | Unpacked | opens an archive (or takes a bare ONNX file) |
| inspect | InspectOrder | Inspection | checks, normalises and runs the model once |
| make | MakeOrder | Made | makes one precision at every size of the ladder |
| evaluate | EvaluateOrder | Evaluated | measures accuracy on labels, or fidelity to fp32 |

with the dataclasses of `modelstore.orders`. From the service:

    limits = ChildLimits(memory_bytes=..., cpu_s=..., wall_s=..., file_bytes=..., nice=10)
    inspection = await run_order(InspectOrder(source=..., target=...), limits=limits, on_progress=report)

`run_order` is `run_stage` with the dataclasses converted; it raises the same typed errors as a call would (BadModel, BadArchive,
BadMetadata, StorageFull ...). A crash or a limit becomes BadModel with a plain reason.

The wire: one JSON object on standard input, `{"order": {...}, "limits": {...}, "parent": pid}`; JSON lines on the inherited standard
output, `{"progress": 0.5, "message": "..."}` any number of times, then one `{"result": {...}}` or `{"error": {"type": "BadModel",
"facts": {...}}}`. Whatever libraries print goes to standard error, of which the parent keeps the tail.
"""
