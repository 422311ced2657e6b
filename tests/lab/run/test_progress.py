import io

from thinrnn.lab.run.progress import Bar, Plain, shown_on, time_left


def test_without_a_terminal_lines_are_plain_and_now_and_then():
    out = io.StringIO()
    with shown_on(out) as progress:
        progress.start("gated", 100)
        progress.step(1, loss="5.0")
        progress.line("half way")
    assert out.getvalue() == "half way\n"


def test_a_plain_line_has_the_progress_and_the_time_left():
    out = io.StringIO()
    plain = Plain(out, every=0)
    plain.start("gated", 100, done=50)
    plain.began -= 10
    plain.step(60, loss="5.0", kept="10-20")
    assert out.getvalue() == "gated 60/100  loss 5.0  kept 10-20  0:40 left\n"


def test_lines_that_come_often_leave_no_room_for_others():
    out = io.StringIO()
    plain = Plain(out, every=60)
    plain.start("gated", 100)
    plain.printed -= 61
    plain.line("epoch 1")
    plain.step(60, loss="5.0")
    assert out.getvalue() == "epoch 1\n"
    plain.printed -= 61
    plain.step(60, loss="5.0")
    assert "gated 60/100" in out.getvalue()


def test_what_comes_later_is_part_of_the_time_left():
    out = io.StringIO()
    plain = Plain(out, every=0)
    plain.start("dense", 100, later=150)
    plain.began -= 60
    plain.step(50, loss="5.0")
    assert "4:00 left" in out.getvalue()


def test_the_bar_knows_the_time_left_although_steps_take_minutes():
    now = 0.0
    out = io.StringIO()
    bar = Bar(out)
    bar.rich.get_time = lambda: now
    bar.start("dense", 100, later=20)
    for step in (10, 20, 30):
        now += 100
        bar.step(step)
    bar.rich.console.print(bar.rich.get_renderable())
    assert out.getvalue().rstrip().endswith("15:00")
    bar.end()


def test_a_terminal_gets_a_bar_with_the_texts_beside_it():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    with shown_on(out) as progress:
        progress.start("dense", 10)
        progress.step(5, ppl="99.5")
        progress.line("[not markup] text")
        progress.start("gated", 10)
    assert "[not markup] text" in out.getvalue()


def test_time_left_reads_like_a_clock():
    assert time_left(10, 0, 5) == "-:--"
    assert time_left(60, 60, 65) == "1:05"
    assert time_left(3600, 1, 2) == "2:00:00"
