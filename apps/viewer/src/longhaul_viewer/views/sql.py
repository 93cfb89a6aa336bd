"""SQL over the store: an editor, the cookbook, saved queries, answers as table, chart and file.

What an address carries is put into the editor and never run: a link could come from anyone.
"""

from typing import cast

import streamlit as st

from longhaul_core.errors import ConfigError, QueryError, StoreError
from longhaul_core.sql_box.box import QueryResult
from longhaul_core.sql_box.cookbook import Question, questions
from longhaul_core.sql_box.files import as_csv, as_parquet, distinct_names
from longhaul_core.sql_box.relations import relations
from longhaul_core.sql_box.saved import SavedQuery, delete_query, save_query, saved_queries
from longhaul_viewer import links
from longhaul_viewer.components import blocks, charts, query_results
from longhaul_viewer.data import curves, sql

EDITOR, ANSWER, PROBLEM, SEEN = "sql_editor", "sql_answer", "sql_problem", "sql_seen"
FIRST = """SELECT run_id, name, status, num_training_steps_done, num_episodes, num_steps
FROM run_summary
ORDER BY started DESC"""
MOST_SHOWN = 500
LONGEST_IN_ADDRESS = 6_000


def page() -> None:
    """Questions on the left, the editor and its answer on the right."""
    blocks.html(blocks.title("SQL"))
    take_from_address()
    left, right = st.columns([1, 3], gap="large")
    with left:
        cookbook()
        saved()
        schema()
    with right:
        editor()
        show_answer()


def take_from_address() -> None:
    """A link's statement stands in the editor; nothing of it runs."""
    given = links.parameter("sql")
    if given is not None and given != st.session_state.get(SEEN):
        put(given)
    st.session_state[SEEN] = given
    st.session_state.setdefault(EDITOR, FIRST)


def put(statement: str) -> None:
    """Another statement in the editor, and no answer yet."""
    st.session_state[EDITOR] = statement
    for key in (ANSWER, PROBLEM):
        st.session_state.pop(key, None)


def editor() -> None:
    """The statement, and what runs it: the button, or Ctrl and Enter."""
    with st.form("sql_form", border=False):
        st.text_area(
            "One SELECT over the store's views and tables. Nothing can be written.",
            key=EDITOR,
            height=230,
        )
        run, hint = st.columns([1, 5], vertical_alignment="center")
        with run:
            asked = st.form_submit_button("Run", type="primary", use_container_width=True)
        with hint:
            blocks.html(
                blocks.note(
                    f"Ctrl+Enter runs it, for {sql.LIMITS.seconds:g} s and "
                    f"{sql.LIMITS.rows:,} rows at most."
                )
            )
    if asked:
        ask(str(st.session_state[EDITOR]))


def ask(statement: str) -> None:
    """Run it, and keep the answer until another is asked for."""
    for key in (ANSWER, PROBLEM):
        st.session_state.pop(key, None)
    try:
        with st.spinner("Asking the store …"):
            st.session_state[ANSWER] = sql.answer(statement)
    except (QueryError, ConfigError, StoreError) as error:
        st.session_state[PROBLEM] = str(error)
    if len(statement) <= LONGEST_IN_ADDRESS:
        st.session_state[SEEN] = statement
        links.set_parameters(sql=statement)


def show_answer() -> None:
    """The table, the chart, the files; or what is wrong."""
    if problem := st.session_state.get(PROBLEM):
        message, _, place = str(problem).partition("\n")
        blocks.html(
            blocks.alert(message),
            f'<div class="mistake">{blocks.text_block(place)}</div>' if place else "",
        )
        return
    result = cast("QueryResult | None", st.session_state.get(ANSWER))
    if result is None:
        blocks.html(
            blocks.note("The answer will stand here: run the statement, or choose a question.")
        )
        return
    more = {
        None: "",
        "rows": f"; there are more than these {sql.LIMITS.rows:,}",
        "bytes": "; there are more, and these are as many bytes as are sent",
    }[result.truncated]
    about, csv, parquet = st.columns([4, 1, 1], vertical_alignment="center")
    with about:
        blocks.html(blocks.note(f"{len(result.rows):,} rows in {result.seconds:.2f} s{more}"))
    if not result.rows:
        st.info("No row matches. Check the run's id and the training step in the statement.")
        return
    with csv:
        st.download_button(
            "CSV",
            as_csv(result, for_spreadsheets=True),
            "answer.csv",
            "text/csv",
            use_container_width=True,
            help="For a spreadsheet: a text that it would carry out begins with '",
        )
    with parquet:
        st.download_button(
            "Parquet",
            as_parquet(result),
            "answer.parquet",
            "application/vnd.apache.parquet",
            use_container_width=True,
        )
    chart(result)
    blocks.html(query_results.table(result, most=MOST_SHOWN))
    if len(result.rows) > MOST_SHOWN:
        blocks.html(blocks.note(f"The first {MOST_SHOWN} rows; the files have all of them."))


def chart(result: QueryResult) -> None:
    """A chart of some columns, if the reader builds one."""
    names, numbers = distinct_names(result.columns), query_results.numeric_columns(result)
    with st.expander("Chart", expanded=bool(links.parameter("kind"))):
        kinds, across, up = st.columns([1, 2, 3])
        asked = links.parameter("kind")
        with kinds:
            kind = st.selectbox(
                "Kind",
                query_results.CHARTS,
                index=query_results.CHARTS.index(asked) if asked in query_results.CHARTS else None,
                placeholder="none",
            )
        with across:
            x = st.selectbox("x", names, index=_place(names, links.parameter("x")))
        rest = [name for name in numbers if name != x]
        with up:
            y = st.multiselect(
                "y",
                rest,
                default=[name for name in links.parameters("y") if name in rest] or rest[:1],
                disabled=kind == "histogram",
            )
        if kind is None or (kind != "histogram" and not y):
            blocks.html(blocks.note("Choose a kind, and a column of numbers for y."))
            return
        if [kind, x, *y] != [asked, links.parameter("x"), *links.parameters("y")]:
            links.set_parameters(kind=kind, x=x, y=y or None)
        charts.show(query_results.chart(result, kind=kind, x=str(x), y=y), key="sql_chart")


def _place(names: list[str], wanted: str | None) -> int:
    return names.index(wanted) if wanted in names else 0


def cookbook() -> None:
    """Questions that are ready to ask; the chosen one is asked, or put into the editor first."""
    blocks.html(blocks.label("Cookbook"))
    chosen = st.selectbox(
        "A question",
        questions(),
        index=None,
        format_func=lambda each: each.question,
        placeholder=f"{len(questions())} questions people ask",
        label_visibility="collapsed",
    )
    if chosen is None:
        return
    if chosen.note:
        blocks.html(blocks.note(chosen.note))
    values = {one.name: value_of(chosen, one.name) for one in chosen.parameters}
    given = {name: value for name, value in values.items() if value}
    asked = st.button("Ask", type="primary", use_container_width=True)
    if asked or st.button("Put into the editor", use_container_width=True):
        try:
            put(sql.statement(chosen, given) if asked else chosen.filled(given))
        except (ConfigError, QueryError, StoreError) as error:
            blocks.html(blocks.alert(str(error)))
            return
        if asked:
            ask(str(st.session_state[EDITOR]))
        st.rerun()


def value_of(asked: Question, name: str) -> str:
    """What the reader wants for a parameter; the runs of the store are offered."""
    parameter = next(one for one in asked.parameters if one.name == name)
    key = f"sql_{asked.name}_{name}"
    if parameter.names == "run":
        runs = curves.run_ids()
        place = min(1 if name == "other" else 0, len(runs) - 1)
        return str(
            st.selectbox(parameter.description, runs, index=place if runs else None, key=key) or ""
        )
    return st.text_input(f"{name}: {parameter.description}", value=parameter.default or "", key=key)


def saved() -> None:
    """The reader's own queries: files in the reader's configuration folder."""
    blocks.html(blocks.label("Saved"))
    for each in saved_queries():
        name, bin_ = st.columns([5, 1], vertical_alignment="center")
        with name:
            if st.button(each.name, key=f"sql_saved_{each.name}", use_container_width=True):
                put(each.sql)
                st.rerun()
        with bin_:
            if st.button("✕", key=f"sql_delete_{each.name}", help="Delete this saved query"):
                delete_query(each.name)
                st.rerun()
    with st.popover("Save the editor's statement", use_container_width=True):
        wanted = st.text_input("Name", key="sql_name", max_chars=64)
        if st.button("Save", key="sql_save", disabled=not wanted):
            try:
                save_query(SavedQuery(name=wanted, sql=str(st.session_state.get(EDITOR, ""))))
            except QueryError as error:
                blocks.html(blocks.alert(str(error)))
            else:
                st.rerun()


def schema() -> None:
    """What may be named."""
    blocks.html(blocks.label("Views and tables"))
    chosen = st.selectbox(
        "A view or table",
        relations(),
        index=None,
        format_func=lambda each: f"{each.name}{'' if each.is_view else ' (table)'}",
        placeholder="its columns",
        label_visibility="collapsed",
    )
    if chosen is None:
        return
    facts = [blocks.Fact(column.name, column.description or "–") for column in chosen.columns]
    blocks.html(blocks.note(chosen.description.splitlines()[0]), blocks.facts(facts))


page()
