"""What people and programs write for a GPU, and the GPUs that the page understands."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from wheelfactory.core.gpus import gpu_products, read_gpu_names

READ = """
const { data, texts } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const found = texts.map((text) => {
    const { arch, candidates } = wheelfactory.readGpu(data, text);
    return arch || candidates.join(" ") || wheelfactory.otherGpu(text)?.title || "unknown";
});
console.log(JSON.stringify(found));
"""

NVIDIA, INTEL = "This is an NVIDIA GPU", "This is an Intel GPU"
MAC, CONSOLE, NONE = "A Mac has no ROCm", "This game console has no ROCm", "No GPU"
PCI = "Advanced Micro Devices, Inc. [AMD/ATI]"

TEXTS = {
    # one GPU
    "gfx600": ["HD 7970", "radeon hd 7950"],
    "gfx702": ["r9 290x", "R9-390"],
    "gfx803": [
        *("rx580", "polaris", "RX 590", "rx 470 8gb", "RX560", "wx 7100", "Pro WX 5100", "R9 Fury X", "RX580 2048SP"),
        *("Radeon Pro 465", "RX Vega M GH", "GCN 4"),
        f"{PCI} Ellesmere [Radeon RX 470/480/570/570X/580/580X/590] (rev e7)",
    ],
    "gfx900": ["Vega 64", "vega56", "MI25", "WX 9100", "Radeon Pro V340L"],
    "gfx902": ["2400G", "3200g", "Vega 11", "RX Vega 11", "AMD Ryzen Embedded V1605B with Radeon Vega Gfx"],
    "gfx906": ["radeon vii", "Radeon Pro VII", "mi50", "MI60 32GB"],
    "gfx908": ["mi100", "arcturus"],
    "gfx90a": [
        *("mi 250x", "MI210", "mi200", "cdna 2", "gfx90a:sramecc+:xnack-", "90a", "GFX90A", "2x MI210", "9.0.10"),
        f"{PCI} Aldebaran/MI200 [Instinct MI250X/MI250]",
    ],
    "gfx90c": [
        *("5700g", "5600GT", "4750G", "Ryzen 7 5800H with Radeon Graphics", "Vega 7", "Ryzen 5 PRO 5650GE"),
        f"{PCI} Cezanne [Radeon Vega Series / Radeon Vega Mobile Series] [1002:1638]",
    ],
    "gfx942": [
        *("mi300", "mi300a", "MI325", "AMD Instinct MI300X VF", "cdna3", "aqua vanjaram", "gfx94X-dcgpu"),
        "8xMI300X",
    ],
    "gfx950": ["mi355x", "MI35X", "MI350P", "Instinct MI355X OAM", "CDNA4"],
    "gfx1010": ["5700xt", "NAVI10", "RX 5600 XT"],
    "gfx1011": ["V540"],
    "gfx1012": ["RX 5500", "Radeon Pro 5500M", "navi 14"],
    "gfx1013": ["BC-250", "bc250"],
    "gfx1030": ["6950", "6800xt", "w6800", "v620", "navi21", "gfx1030", "1030"],
    "gfx1031": ["6700 xt", "6750xt", "6800m", "RX 6750 GRE 12 GB", "AMD Radeon™ RX 6700 XT"],
    "gfx1032": ["rx 6650xt", "W6600", "intel core i5 + RX 6600"],
    "gfx1033": ["steam deck", "Van Gogh", "steamdeck oled", "AMD Custom GPU 0405 (RADV VANGOGH)"],
    "gfx1034": ["6500xt", "rx 6400"],
    "gfx1035": ["680m", "rembrandt", "7735HS", "Ryzen 7 6800H", "z2 go", "Ryzen 7 170"],
    "gfx1036": [
        *("gfx1036", "raphael", "Ryzen 9 7950X", "9800x3d", "610m", "Graphics (RADV RAPHAEL_MENDOCINO)"),
        *("Ryzen 7 7700", "Ryzen 5 7600", "8945HX", "AMD Radeon Graphics (radeonsi, raphael_mendocino, LLVM 15.0.7)"),
    ],
    "gfx1100": [
        *("7900xtx", "7900 xtx", "XTX", "radion 7900", "w7900", "RX 7900 XTZ", "navi31", "gfx 1100"),
        *("1100", "Sapphire Pulse RX 7900 XT 20GB", "RX7900XTX", "W7800 48GB", "Radeon Pro W7900 Dual Slot", "W7900DS"),
        *("gfx 11.0.0", "11.0.0", "2x7900XTX", "7900XTX x2", "RX 7900 XT/XTX", "7900 XTX / RTX 3090"),
        "Card Model: 0x744c",
        "AMD Radeon RX 7900 XTX (radeonsi, navi31, LLVM 19.1.7, DRM 3.60, 6.8.0-40-generic)",
        f"{PCI} Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M] (rev c8)",
    ],
    "gfx1101": ["raden rx 7800", "7700xt", "v710", "RX-7800-XT"],
    "gfx1102": [
        *("7600", "7600 xt", "RX 7650 GRE", "steam machine"),
        f"{PCI} Navi 33 [Radeon RX 7600/7600 XT/7600M XT/7600S/7700S / PRO W7600]",
    ],
    "gfx1103": [
        *("760m", "8700g", "ryzen 7 7840HS", "z1 extreme", "Phoenix", "hawk point", "ROG Ally", "8845HS"),
        *("Ryzen 7 PRO 250", "Radeon 780M (radeonsi, phoenix, LLVM 19.1.0, DRM 3.59, 6.11.0-9-generic)"),
    ],
    "gfx1150": [
        *("strix point", "hx370", "ai 9 hx 370", "890m", "ai 9 365", "HX 470", "Ryzen Z2 Extreme", "gorgon point"),
        *("370", "xbox ally x", "Ryzen AI 9 HX PRO 370", f"{PCI} Strix [Radeon 880M / 890M] (rev c1)"),
    ],
    "gfx1151": [
        *("ryzen ai max+ 395", "AI MAX+ PRO 395", "Ryzen AI Max 385", "8060s", "evo-x2", "framework desktop"),
        *("strix halo", "gorgon halo", "ryzen ai max+", "AMD Radeon Graphics (RADV GFX1151)", "gfx1151:xnack-"),
        *("STX-H", "HP ZBook Ultra", f"{PCI} Device 1586 (rev c1)"),
    ],
    "gfx1152": ["AI 7 350", "Ryzen AI 5 340 w/ Radeon 840M", "860M", "krackan point"],
    "gfx1153": ["820M", "Krackan 2"],
    "gfx1200": ["9060", "9060xt 16 gb", "Navi 44", "RX 9050"],
    "gfx1201": [
        *("9070 XT OC", "PowerColor Red Devil 9070xt", "9070 GRE", "ai pro r9700", "R9600D", "navi 48", "1201"),
        *(f"{PCI} Device 7550 (rev c0)", "1002:7551"),
    ],
    "gfx1250": ["gfx1250", "mi455x"],
    "gfx1251": ["mi430x"],
    # several GPUs: it asks which one is meant
    "gfx1150 gfx1151": ["strix"],
    "gfx1150 gfx1152 gfx1153": ["ai 300", "Ryzen AI 300 series"],
    "gfx1010 gfx1011 gfx1012": ["RDNA"],
    "gfx1152 gfx1153": ["840M", "krackan", "AI 7 445"],
    "gfx1031 gfx1032": ["RX 6750 GRE"],
    "gfx1030 gfx1031 gfx1032 gfx1034": ["navi 2x"],
    "gfx1033 gfx1150": ["xbox ally"],
    "gfx902 gfx90c": ["vega 8"],
    "gfx902 gfx909": [f"{PCI} Picasso/Raven 2 [Radeon Vega Series]"],  # one device ID of both
    "gfx900 gfx902 gfx906 gfx90c": ["vega"],
    "gfx1250 gfx1251": ["mi400"],
    "gfx1100 gfx1032": ["RX 7900 XTX and RX 6600"],
    "gfx1100 gfx1201": ["gfx1100;gfx1201", "gfx1100, gfx1201", "7900xtx/9070xt"],
    "gfx1200 gfx1201": ["RDNA 4", "gfx120X-all", "gfx12-generic"],
    "gfx1100 gfx1101 gfx1102": ["RX 7000 series", "navi3x"],
    "gfx1100 gfx1101 gfx1102 gfx1103": ["rdna3", "gfx110X-all"],
    "gfx1150 gfx1151 gfx1152 gfx1153": ["rdna 3.5", "gfx115X-all"],
    "gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036": ["RDNA2", "gfx103X-dgpu"],
    "gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153": ["gfx11-generic"],
    # no GPU of AMD
    NVIDIA: [
        *("4090", "3060 ti", "RTX 5090", "rtx 4090", "gtx 1080", "GT 1030", "A100", "a6000", "L40S", "H100", "h200"),
        *("B200", "GB10", "Tesla V100", "nvidia", "DGX Spark", "sm_90"),
    ],
    INTEL: ["A770", "arc b580", "Intel Iris Xe", "uhd 770", "i7-7700"],
    MAC: ["m3 max", "macbook pro", "mac studio"],
    CONSOLE: ["ps5", "xbox", "xbox series x"],
    NONE: ["cpu", "none", "no gpu"],
    # a number or a brand of several products is no name, and neither are similar letters
    "unknown": [
        *("AMD Radeon Graphics", "radeon", "RX", "pro", "xt", "16gb", "gfx1234", "quux", "RX 9080 XT", "RX 7950 XTX"),
        *("AMD Radeon RX 6870M XT", "Radeon Graphics"),
        *("8300X", "Ryzen 5 5600", "RX 79", "framework 16", "EVO-X1", "MS-01", "workstation", "HD 6950"),
    ],
}


def test_the_page_understands_what_people_and_programs_write() -> None:
    node = shutil.which("node")
    if not node:
        pytest.skip("needs node")
    script = Path(str(resources.files("wheelfactory.site"))) / "page/search/gpus.js"
    program = f"globalThis.wheelfactory = {{}};\n{script.read_text(encoding='utf-8')}\n{READ}"
    expected = {text: gpus for gpus, texts in TEXTS.items() for text in texts}
    data = {"gpus": [(row.archs, row.names) for row in read_gpu_names()], "options": {"gpu": list(gpu_products())}}
    given = json.dumps({"data": data, "texts": list(expected)})
    done = subprocess.run([node, "-e", program], input=given, capture_output=True, text=True, check=True)
    found = dict(zip(expected, json.loads(done.stdout), strict=True))
    assert {text: gpus for text, gpus in found.items() if set(gpus.split()) != set(expected[text].split())} == {}
