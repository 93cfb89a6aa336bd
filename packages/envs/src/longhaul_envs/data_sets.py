"""The data sets that packaged environments can use beside what they carry.

A set with files is fetched from its publisher; where its licence, a login or its size forbids
that, the manual way says what a person does. ALFWorld's addresses are those of its own
`alfworld-download`; Boxoban's archive is of a fixed commit. No address here was fetched when this
was written, and no hash is known: what arrives first is recorded, and later ones compared with it.
"""

from collections.abc import Mapping

from longhaul_envs.data import DataFile, DataSet

__all__ = ["DATA_SETS"]

_ALFWORLD = "https://github.com/alfworld/alfworld/releases/download"
_BOXOBAN = (
    "https://github.com/google-deepmind/boxoban-levels/archive/"
    "93295710732b70c1dd61df2a881f5eed827eb2d5.zip"
)

_LISTED = (
    DataSet(
        name="alfworld",
        environment="longhaul/ALFWorld-v0",
        summary="the released games: 3,553 train, 140 seen, 134 unseen",
        licence="MIT",
        files=tuple(
            DataFile(url=f"{_ALFWORLD}/{file}", unpack=True)
            for file in (
                "0.2.2/json_2.1.1_json.zip",
                "0.2.2/json_2.1.1_pddl.zip",
                "0.4.0/json_2.1.2_tw-pddl.zip",
            )
        ),
    ),
    DataSet(
        name="appworld",
        environment="longhaul/AppWorld-v0",
        summary="apps, tasks and their tests",
        licence="Apache-2.0; its authors ask that tasks are not published in plain text",
        manual=(
            "Its package decrypts and checks what it fetches. In an environment of its own: "
            "`pip install appworld && appworld install && appworld download data --root {folder}`"
        ),
    ),
    DataSet(
        name="bird-sql",
        environment="longhaul/SQL-v0",
        summary="databases and questions of BIRD-SQL",
        licence="CC BY-SA 4.0",
        manual=(
            "Download the train and dev archives from https://bird-bench.github.io (some 10 GB) "
            "and unpack them into {folder}"
        ),
    ),
    DataSet(
        name="boxoban",
        environment="longhaul/Sokoban-v0",
        summary="levels of 10 by 10 with four boxes: unfiltered, medium and hard",
        licence="Apache-2.0",
        files=(DataFile(url=_BOXOBAN, unpack=True, strip=1),),
    ),
    DataSet(
        name="webarena",
        environment="longhaul/WebArena-v0",
        summary="six web sites as container images",
        licence="of each site's software",
        manual=(
            "Host the sites as environment_docker of https://github.com/web-arena-x/webarena "
            "describes (some 200 GB of images), and name their addresses in the environment's "
            "options; configuration files of the tasks go into {folder}"
        ),
    ),
    DataSet(
        name="webshop",
        environment="longhaul/WebShop-v0",
        summary="1.18 million products and 12,087 goals",
        licence="MIT for the code; the products are Amazon's listings",
        manual=(
            "The files lie on Google Drive behind a form: run `setup.sh -d all` of "
            "https://github.com/princeton-nlp/WebShop, and put items_shuffle.json, "
            "items_ins_v2.json and items_human_ins.json into {folder}"
        ),
    ),
    DataSet(
        name="wiki",
        environment="longhaul/Search-v0",
        summary="Wikipedia of 2018 in passages, and questions of NQ and HotpotQA",
        licence="CC BY-SA 3.0 (Wikipedia); see each set of questions for its own",
        manual=(
            "Some 14 GB of passages: `huggingface-cli download PeterGriffinJin/wiki-18-corpus "
            "--repo-type dataset --local-dir {folder}`, as Search-R1 does, and unpack "
            "wiki-18.jsonl.gz there. Questions: the folders nq and hotpotqa of the data set "
            "RUC-NLPIR/FlashRAG_datasets, likewise. Then name the file and a folder of questions "
            "by the options corpus and questions"
        ),
    ),
)

DATA_SETS: Mapping[str, DataSet] = {data.name: data for data in _LISTED}
"""By name, in alphabetical order."""
