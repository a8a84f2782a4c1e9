"""A small flash-attn whose generator, dispatch file, header and bindings are like upstream's, and its setup.py.

Its generator makes eight kernels: with and without soft cap, mask and log-sum-exp. The bindings pass soft cap false and
log-sum-exp true, so two of them can be called.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from filter_proof.proof import prove_filters
from small_release import SETUP, write_release
from wheelfactory.matrix.load import load_matrix

FILTER = "*_nlogits_*_lse"

GENERATE = """\
import argparse, fnmatch, itertools
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("-d", "--direction")
parser.add_argument("--output_dir", type=Path)
parser.add_argument("--filter", default="*")
options = parser.parse_args()
branches = ""
for soft_cap, mask, lse in itertools.product(("true", "false"), repeat=3):
    words = [word if on == "true" else "n" + word for word, on in (("logits", soft_cap), ("mask", mask), ("lse", lse))]
    name = "fmha_fwd_d64_fp16_" + "_".join(words)
    if not fnmatch.fnmatch(name, options.filter):
        continue
    branches += f\"\"\"        {"else " * bool(branches)}if((t.has_logits_soft_cap == {soft_cap}) &&
                (t.use_mask == {mask}) && (t.has_lse == {lse}) && (true /* a.seqlen % 8 */)) {{
            using trait_ = fmha_fwd_traits_<64, FmhaFwdFp16, {soft_cap}, ck_tile::Mask<{mask}>, /*lse=*/{lse}>;
            return fmha_fwd_<trait_>(s, a);
        }}
\"\"\"
    (options.output_dir / f"{name}.cpp").write_text(f\"\"\"using mask_0 = ck_tile::Mask<{mask}>;
using trait_0 = fmha_fwd_traits_<64, FmhaFwdFp16, {soft_cap}, mask_0,
                                 {lse}>;
template<>
float fmha_fwd_<trait_0>(const ck_tile::stream_config& s, fmha_fwd_args a) {{ return 0; }}
\"\"\")
(options.output_dir / "fmha_fwd_api.cpp").write_text(f\"\"\"#include "fmha_fwd.hpp"

float fmha_fwd(fmha_fwd_traits t, fmha_fwd_args a, const ck_tile::stream_config& s) {{
    float r = -1;
    if (t.hdim <= 64) {{
{branches}    }}
    return r;
}}
\"\"\")
"""

HEADER = """\
// This is the public API
struct fmha_fwd_traits
{
    int hdim;
    bool has_logits_soft_cap;
    bool use_mask; // causal or windowed
    bool has_lse;
    bool skip = false;
};
"""

BINDING = """\
#include "fmha_fwd.hpp"

fmha_fwd_traits get_traits(int head_size, bool is_causal, bool has_lse)
{
    return fmha_fwd_traits{head_size,
                           false, // has_logits_soft_cap
                           is_causal,
                           has_lse};
}

std::vector<at::Tensor> mha_fwd(at::Tensor &q, bool is_causal)
{
    bool has_lse = true;
    if (q.size(0) > 0) {
        auto traits = get_traits(round(q.size(3), 8), is_causal, has_lse);
        fmha_fwd(traits, get_args(has_lse, q), {stream});
    }
    return {};
}
"""

_OLD_SOURCES = re.search(r"for number in range\(.*?\n(?=for path in sources)", SETUP, re.DOTALL)
assert _OLD_SOURCES
DISPATCH_SETUP = SETUP.replace(
    _OLD_SOURCES[0],
    """\
subprocess.run([sys.executable, "csrc/ck/generate.py", "-d", "fwd", "--output_dir", "build"], check=True)
for path in sorted(build.glob("fmha_*wd*.cpp")):
    sources.append(path.rename(path.with_suffix(".hip")))
""",
).replace('    path.write_text(f"// {path.name}")\n', "    path.touch()\n")
"""The small release's setup.py, with its kernels made by the generator."""

TRIM = f"{{filters: [{{direction: fwd, filter: '{FILTER}'}}], source: made by this test}}"


def generate(folder: Path, *options: str) -> dict[str, str]:
    """Run the generator in a new folder, and return the generated texts by name."""
    (folder / "build").mkdir(parents=True)
    program = folder / "generate.py"
    program.write_text(GENERATE)
    command: Sequence[str | Path] = [sys.executable, program, "-d", "fwd", "--output_dir", folder / "build", *options]
    subprocess.run(command, check=True)
    return {path.stem: path.read_text() for path in (folder / "build").iterdir()}


def make_dispatch_release(cache: Path, folder: Path, binding: str = BINDING) -> Path:
    """Put the sdist into the downloads of `cache`, and return a matrix in `folder` with this release as 2.8.3.

    It has no `kernel-sources`, so that its kernel sets have the names of the version. Its filters are proved for
    `BINDING`.
    """
    proved = TRIM.removesuffix("}") + f", proof: {prove_dispatch_filters()}}}"
    return write_dispatch_release(cache, folder, binding, proved)


@cache
def prove_dispatch_filters() -> str:
    """The digest of the proof of the release's filters."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        release = load_matrix(write_dispatch_release(folder, folder)).flash_attn["2.8.3"]
        return prove_filters("2.8.3", release, folder, os.environ)


def write_dispatch_release(cache: Path, folder: Path, binding: str = BINDING, trim: str = TRIM) -> Path:
    """As `make_dispatch_release`, with this ``trim``."""
    members = {
        "setup.py": DISPATCH_SETUP,
        "csrc/ck/generate.py": GENERATE,
        "csrc/ck/fmha_fwd.hpp": HEADER,
        "csrc/attention/mha_fwd.cpp": binding,
    }
    matrix = write_release(cache, folder, members)
    real_trim = r"      trim:\n.*?(?=      source: 'allow-list in validate)"
    text, count = re.subn(real_trim, lambda _: f"      trim: {trim}\n", matrix.read_text(), count=1, flags=re.DOTALL)
    assert count == 1
    matrix.write_text(text)
    return matrix
