"""AgentGym's servers in small: the routes, fields, shapes and defects of each, around tiny games.

Written from the servers' code, not from the table that the client reads. A body with a field that
the real server does not declare is refused here, and one that lacks a field is refused by both.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class IdBody(Body):
    id: int


class IndexBody(Body):
    env_idx: int


class StepBody(Body):
    id: int
    action: str


class IndexStepBody(Body):
    env_idx: int
    action: str


class CreateItem(Body):
    id: int


class Recorded(FastAPI):
    """An application that keeps what was asked of it, and how many environments it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []
        self.games: dict[int, Any] = {}

        @self.middleware("http")
        async def record(
            request: Request, call_next: Callable[[Request], Awaitable[Response]]
        ) -> Response:
            self.asked.append((request.method, request.url.path))
            return await call_next(request)


def textcraft() -> Recorded:
    """Sequential ids; errors as status 200; `/create` takes a body and answers an observation."""
    app = Recorded()

    class Create(Body):
        commands: str | None = None
        goal: str | None = None

    class Reset(Body):
        id: int
        data_idx: int | None = 0

    @app.post("/create")
    async def create(body: Create) -> dict[str, Any]:
        number = len(app.games)
        app.games[number] = {"deleted": False}
        return {"id": number, "observation": "Crafting commands:", "done": False, "reward": 0}

    def held(number: int) -> dict[str, Any]:
        if app.games.get(number, {"deleted": True})["deleted"]:
            raise ValueError(f"The id {number} is not valid.")
        return app.games[number]

    @app.post("/reset")
    def reset(body: Reset) -> dict[str, Any]:
        try:
            held(body.id)["goal"] = f"item {body.data_idx}"
        except ValueError as error:
            return {"error": str(error)}
        text = f"Crafting commands:\ncraft 1 item using 1 log\n\nGoal: craft item {body.data_idx}."
        return {"id": body.id, "observation": text, "done": False, "reward": 0}

    @app.post("/step")
    def step(body: StepBody) -> dict[str, Any]:
        try:
            game = held(body.id)
        except ValueError as error:
            return {"error": str(error)}
        if body.action == f"craft 1 {game['goal']} using 1 log":
            return {"observation": "Crafted 1 minecraft:item", "reward": 1, "done": True}
        if body.action.startswith("get "):
            return {"observation": f"Got {body.action[4:]}", "reward": 0, "done": False}
        return {"observation": f"Could not execute {body.action}", "reward": 0, "done": False}

    @app.post("/close")
    def close(body: IdBody) -> object:
        try:
            held(body.id)["deleted"] = True
        except ValueError as error:
            return {"error": str(error)}
        return True

    return app


def babyai() -> Recorded:
    """The score adds up the rewards; a step after the end is an error."""
    app = Recorded()

    class Reset(Body):
        id: int
        data_idx: int

    listed = '\nAvailable actions: ["turn left", "turn right", "go to red ball 1"]'

    @app.post("/create")
    async def create() -> dict[str, Any]:
        number = len(app.games)
        app.games[number] = {"score": 0.0, "done": False}
        return {"id": number}

    @app.post("/reset")
    def reset(body: Reset) -> dict[str, Any]:
        app.games[body.id] = {"score": 0, "done": False, "reward": 0}
        goal = f"Your goal: go to the red ball of item {body.data_idx}\n"
        return {
            "observation": f"{goal}In front of you in this room{listed}",
            "reward": 0,
            "score": 0,
            "deleted": False,
            "done": False,
        }

    @app.post("/step")
    def step(body: StepBody) -> dict[str, Any]:
        game = app.games[body.id]
        if game["done"]:
            return {"error": f"The task with environment {body.id} has finished."}
        text = "You turned. "
        if body.action == "turn right":
            game["reward"] = 0.25  # of a subgoal; it stays until the next one
        elif body.action == "go to red ball 1":
            game["reward"], game["done"] = 0.75, True
            text = "\n The task is completed."
        elif body.action != "turn left":
            text = "The action is not recognized. Please check valid actions."
        game["score"] += game["reward"]
        return {
            "observation": text + listed,
            "reward": game["reward"],
            "score": game["score"],
            "done": game["done"],
        }

    @app.post("/close")
    def close(body: IdBody) -> bool:
        del app.games[body.id]
        return True

    return app


def sciworld() -> Recorded:
    """Scores from 0 to 100, -100 for a failure; a second close is a crash."""
    app = Recorded()

    class Reset(Body):
        id: int
        data_idx: int

    @app.post("/create")
    async def create() -> dict[str, Any]:
        number = len(app.games)
        app.games[number] = {"score": 0}
        return {"id": number}

    @app.post("/reset")
    def reset(body: Reset) -> dict[str, Any]:
        return {
            "task_name": "boil",
            "var_num": body.data_idx,
            "task_description": f"Task Description:\nBoil substance {body.data_idx}.",
            "observation": "This room is called the kitchen.",
            "reward": 0,
            "score": 0,
            "deleted": False,
            "done": False,
        }

    @app.post("/step")
    def step(body: StepBody) -> dict[str, Any]:
        scores = {"open door to kitchen": 8, "focus on water": 58, "wait": 100, "eat water": -100}
        if body.action not in scores:
            text = "No known action matches that input."
            return {"observation": text, "reward": 0, "score": 0, "done": False}
        score = scores[body.action]
        done = abs(score) == 100
        return {"observation": "The door is open.", "reward": 8, "score": score, "done": done}

    @app.post("/close")
    def close(body: IdBody) -> bool:
        del app.games[body.id]  # a KeyError, so status 500, where it is closed already
        return True

    return app


def alfworld() -> Recorded:
    """No `/close`; the list of actions beside the observation; everything as status 200."""
    app = Recorded()

    class Reset(Body):
        id: int
        game: int
        world_type: str

    @app.post("/create")
    async def create() -> dict[str, Any]:
        number = len(app.games)
        app.games[number] = None
        return {"id": number}

    @app.post("/reset")
    async def reset(body: Reset) -> dict[str, Any]:
        if body.world_type not in ("Text", "Embody", "Hybrid"):
            return {"error": 'world_type must be one of "Text", "Embody" and "Hybrid"'}
        if body.game >= 3827:
            return {"error": "list index out of range"}
        return {
            "id": body.id,
            "observation": f"You are in the middle of a room.\nYour task: move mug {body.game}.",
            "available_actions": ["go to desk 1", "look"],
            "task_type": "pick_and_place/trial",
        }

    @app.post("/step")
    async def step(body: StepBody) -> dict[str, Any]:
        won = body.action == "put mug 1 in/on desk 1"
        text = {
            "go to desk 1": "On the desk 1, you see nothing.",
            "put mug 1 in/on desk 1": "You put the mug 1 in/on the desk 1.",
        }.get(body.action, "Nothing happens.")
        return {
            "observation": text,
            "reward": float(won),
            "available_actions": [] if won else ["put mug 1 in/on desk 1", "look"],
            "done": won,
        }

    return app


def webshop() -> Recorded:
    """A bare random number as id, `[text, null]` from `/reset`, no `/close`."""
    app = Recorded()

    class Reset(Body):
        env_idx: int
        session_id: int | None = None

    @app.post("/create")
    async def create() -> int:
        number = random.randint(0, 48_950_076)
        app.games[number] = "nothing"
        return number

    @app.post("/reset")
    def reset(body: Reset) -> tuple[str, None]:
        app.games[body.env_idx] = f"WebShop [SEP] Instruction: [SEP] Find shoe {body.session_id}"
        return "an observation of before", None

    @app.get("/observation")
    def observation(env_idx: int) -> str:
        return app.games[env_idx]

    @app.post("/step")
    def step(body: IndexStepBody) -> dict[str, Any]:
        bought = body.action == "click[buy now]"
        text = "Thank you for shopping with us!" if bought else "Back to Search [SEP] shoe"
        reward = 0.5 if bought else 0.0
        return {"state": text, "reward": reward, "done": bought, "info": None}

    return app


def searchqa() -> Recorded:
    """`/create` needs an item; a wrong answer may score and does not end the episode."""
    app = Recorded()

    class Reset(Body):
        env_idx: int
        id: int | None = None

    @app.post("/create")
    def create(body: CreateItem) -> int:
        number = len(app.games)
        app.games[number] = body.id
        return number

    @app.get("/observation")
    def observation(env_idx: int) -> str:
        return f"Question: who wrote book {app.games[env_idx]}?"

    @app.post("/reset")
    def reset(body: Reset) -> str:
        app.games[body.env_idx] = body.id
        return observation(body.env_idx)

    @app.post("/step")
    def step(body: IndexStepBody) -> dict[str, Any]:
        score, done = 0.0, False
        if "<search>" in body.action:
            text = "<information>Doc 1(Title: Book) by Ann</information>"
        elif "<answer>Ann</answer>" in body.action:
            text, score, done = "Congratulations! You have answered correctly.", 1.0, True
        elif "<answer>" in body.action:
            text, score = "Sorry, your answer is incorrect. Please try again.", 0.125
        else:
            text = "Your previous action is invalid. If you want to search, …"
        return {"observation": text, "reward": score, "done": done, "info": None}

    @app.post("/close")
    def close(body: IndexBody) -> bool:
        return app.games.pop(body.env_idx, None) is not None

    return app


def webarena() -> Recorded:
    """A reset that failed is an observation; rewards before the end mean nothing."""
    app = Recorded()

    @app.post("/create")
    async def create() -> dict[str, Any]:
        number = len(app.games)
        app.games[number] = None
        return {"env_idx": number}

    @app.post("/reset")
    async def reset(request: Request) -> dict[str, Any]:
        query = await request.json()
        assert query["seed"] == 0
        if query["idx"] == 811:
            return {"observation": "TimeoutError", "sites": "Error", "object": "Error"}
        app.games[query["env_idx"]] = query["idx"]
        return {"observation": "[1] RootWebArea 'Shop'", "sites": ["shop"], "object": "x"}

    @app.get("/observation")
    async def observation(env_idx: int) -> str:
        return f"OBSERVATION:\n[1] RootWebArea 'Shop'\nOBJECTIVE: buy thing {app.games[env_idx]}"

    @app.post("/step")
    async def step(request: Request) -> dict[str, Any]:
        query = await request.json()
        action = query["action"]
        if "```" not in action:
            text = f"Cannot parse action from response {action}"
            return {
                "observation": text,
                "reward": 0,
                "terminated": False,
                "truncated": False,
                "info": None,
            }
        done = "stop [" in action
        return {
            "observation": "[1] RootWebArea 'Shop'",
            "reward": 1.0,
            "terminated": done,
            "truncated": "close_tab" in action,
            "info": {},
        }

    @app.post("/close")
    async def close(request: Request) -> dict[str, str]:
        del app.games[(await request.json())["env_idx"]]
        return {"closed": "closed"}

    return app


def lmrlgym() -> Recorded:
    """Maze and Wordle under one address, without `/close`."""
    app = Recorded()

    class ResetMaze(Body):
        id: int
        game: int

    class ResetWordle(Body):
        id: int
        seed: int

    @app.post("/maze/create")
    async def create_maze() -> dict[str, Any]:
        number = len(app.games)
        app.games[number] = 0
        return {"id": number}

    @app.post("/maze/reset")
    def reset_maze(body: ResetMaze) -> dict[str, Any]:
        app.games[body.id] = body.game
        return {"observation": f"The goal is at position 8, 6. You are at 1, {body.game}."}

    @app.post("/maze/step")
    def step_maze(body: StepBody) -> dict[str, Any]:
        if body.action not in ("move up", "move down", "move left", "move right"):
            return {"error": "list index out of range"}
        done = body.action == "move down"
        text = "Success\n" if done else "There is a wall above you.\n"
        return {"observation": text, "reward": float(done), "done": done}

    @app.post("/wordle/create")
    async def create_wordle() -> dict[str, Any]:
        number = len(app.games)
        app.games[number] = 0
        return {"id": number}

    @app.get("/wordle/filtered_vocab")
    def vocabulary(id: int) -> list[str]:
        return ["c r a n e", "s h i r e"]

    @app.post("/wordle/reset")
    def reset_wordle(body: ResetWordle) -> dict[str, Any]:
        return {"id": body.id, "observation": "Let's start Wordle!"}

    @app.post("/wordle/step")
    def step_wordle(body: StepBody) -> dict[str, Any]:
        if body.action == "s h i r e":
            return {"observation": "g g g g g", "reward": 1, "done": True}
        if body.action == "c r a n e":
            return {"observation": "b y b b g", "reward": 0, "done": False}
        return {"observation": "invalid word", "reward": 0, "done": False}

    return app


def sqlgym() -> Recorded:
    """Eight environments at most: a ninth is one of them again. Crashes are status 500."""
    app = Recorded()
    order: list[int] = []
    turn = [-1]

    class Reset(Body):
        env_idx: int
        item_id: int

    @app.post("/create")
    async def create() -> int:
        if len(order) == 8:
            turn[0] = (turn[0] + 1) % 8
            return order[turn[0]]
        order.append(1000 + 37 * len(order))
        app.games[order[-1]] = None
        return order[-1]

    @app.post("/reset")
    async def reset(body: Reset) -> tuple[str, None]:
        if body.item_id >= 10_962:
            raise ValueError(f"Item id {body.item_id} is out of range.")
        app.games[body.env_idx] = f"How many schools are in county {body.item_id}?"
        return app.games[body.env_idx], None

    @app.get("/observation")
    async def observation(env_idx: int) -> str:
        return app.games[env_idx]

    @app.post("/step")
    async def step(body: IndexStepBody) -> dict[str, Any]:
        right = body.action == "SELECT COUNT(*) FROM schools"
        return {"state": "[(7,)]", "reward": float(right), "done": True, "info": {}}

    return app


def tool() -> Recorded:
    """What the five servers of tools share: the reward is progress so far, 0 to 1."""
    app = Recorded()

    class Reset(Body):
        env_idx: int
        id: int | None = None

    class Answer(BaseModel):
        observation: str
        reward: float | bool
        done: bool

    @app.post("/create")
    def create(body: CreateItem) -> int:
        number = len(app.games)
        app.games[number] = {"item": body.id, "progress": 0.0}
        return number

    @app.get("/observation")
    def observation(env_idx: int) -> str:
        item = app.games[env_idx]["item"]
        return f"Now new trial starts.\nYou should perform actions to accomplish the goal: {item}"

    @app.post("/reset")
    def reset(body: Reset) -> str:
        app.games[body.env_idx] = {"item": body.id, "progress": 0.0}
        return observation(body.env_idx)

    @app.post("/step")
    def step(body: IndexStepBody) -> Answer:
        game = app.games[body.env_idx]
        if not body.action.startswith("Action:") or "Action Input:" not in body.action:
            return Answer(
                observation="Format error, please response in the format of …",
                reward=game["progress"],
                done=False,
            )
        if "finish" in body.action:
            # as the todo server: true or false instead of a number
            return Answer(observation="Observation: done", reward="right" in body.action, done=True)
        game["progress"] = 0.5
        return Answer(observation="Observation: [1]\nGive me one action.", reward=0.5, done=False)

    return app


def slow() -> FastAPI:
    """Creates, and never answers a reset."""
    app = FastAPI()

    @app.post("/create")
    async def create() -> dict[str, Any]:
        return {"id": 0}

    @app.post("/reset")
    async def reset() -> None:
        await asyncio.sleep(3600)

    return app


SERVERS: dict[str, Callable[[], Recorded]] = {
    "textcraft": textcraft,
    "babyai": babyai,
    "sciworld": sciworld,
    "alfworld": alfworld,
    "webshop": webshop,
    "searchqa": searchqa,
    "webarena": webarena,
    "maze": lmrlgym,
    "wordle": lmrlgym,
    "sqlgym": sqlgym,
    "weather": tool,
    "movie": tool,
    "academia": tool,
    "todo": tool,
    "sheet": tool,
}
