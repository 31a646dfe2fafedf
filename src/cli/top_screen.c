/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <locale.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/top.h"

#define INTERVAL_MS_MIN 200u
#define INTERVAL_MS_MAX 60000u
/* A cut column with fewer characters is left out. */
#define CUT_COLUMNS_MIN 12
/* Ctrl-L redraws the screen, as in other programs. */
#define KEY_REDRAW ('L' & 0x1f)

struct screen {
    const char *name;
    unsigned interval_ms;
    enum via_top_section section;
    size_t skip;
    bool paused;
    bool ended;
    struct via_top_model model;
    struct via_top_lines lines;
};

/* The program restores the terminal also after a hangup, and after signals that end programs. */
static volatile sig_atomic_t is_end_requested;

static void on_signal(int number)
{
    (void)number;
    is_end_requested = 1;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static attr_t attributes_of(enum via_top_style style)
{
    bool colours = has_colors();
    switch (style) {
    case VIA_TOP_TITLE:
        return A_BOLD | (colours ? COLOR_PAIR(1) : 0);
    case VIA_TOP_HEAD:
        return A_REVERSE;
    case VIA_TOP_GOOD:
        return colours ? COLOR_PAIR(2) : A_NORMAL;
    case VIA_TOP_BAD:
        return A_BOLD | (colours ? COLOR_PAIR(3) : 0);
    case VIA_TOP_QUIET:
        return A_DIM;
    case VIA_TOP_PLAIN:
        break;
    }
    return A_NORMAL;
}

/* The columns of a line that fit. A column that would be cut to a few characters is left out,
 * because "6.92 kB" must not become "6.". */
static int columns_of(const struct via_top_line *line)
{
    int bytes = (int)strlen(line->text);
    if (bytes <= COLS) {
        return bytes;
    }
    int at = COLS;
    while (at > 0 && COLS - at < CUT_COLUMNS_MIN &&
           (line->text[at - 1] != ' ' || (at > 1 && line->text[at - 2] != ' '))) {
        at--;
    }
    return COLS - at < CUT_COLUMNS_MIN ? at : COLS;
}

static void draw_line(int row, const struct via_top_line *line)
{
    attr_t attributes = attributes_of(line->style);
    int columns = columns_of(line);
    attron(attributes);
    mvaddnstr(row, 0, line->text, columns);
    if (line->style == VIA_TOP_HEAD) {
        /* Extends the head to the edge of the screen. */
        for (int column = columns; column < COLS; column++) {
            mvaddch(row, column, ' ');
        }
    }
    attroff(attributes);
}

static void draw_keys(const struct screen *screen)
{
    attron(A_DIM);
    mvprintw(LINES - 1, 0,
             "%s every %.1f s  q quit  a all h hosts l links c connections j jobs  space %s",
             screen->paused ? "PAUSED," : "", screen->interval_ms / 1000.0,
             screen->paused ? "goes on" : "pauses");
    attroff(A_DIM);
}

static int draw(struct screen *screen, struct via_error *err)
{
    screen->lines.count = 0;
    size_t rows = LINES > 1 ? (size_t)LINES - 1 : 1;
    int rc = via_top_view(&screen->model, screen->section, rows, screen->skip, &screen->lines);
    if (rc != 0) {
        return via_error_set(err, rc, "draw: %s", strerror(-rc));
    }
    erase();
    for (size_t i = 0; i < screen->lines.count && i < rows; i++) {
        draw_line((int)i, &screen->lines.lines[i]);
    }
    draw_keys(screen);
    refresh();
    return 0;
}

static void show(struct screen *screen, enum via_top_section section)
{
    screen->section = section;
    screen->skip = 0;
}

static size_t count_of(const struct screen *screen)
{
    const struct via_top_model *model = &screen->model;
    switch (screen->section) {
    case VIA_TOP_HOSTS:
        return model->status != NULL ? model->status->fabric.topology.hosts_count : 0;
    case VIA_TOP_LINKS:
        return model->status != NULL ? model->status->fabric.topology.links_count : 0;
    case VIA_TOP_CONNECTIONS:
        return model->connections_count;
    case VIA_TOP_JOBS:
        return model->jobs_count;
    case VIA_TOP_SECTIONS:
        break;
    }
    return 0;
}

static void scroll_by(struct screen *screen, int rows)
{
    size_t count = count_of(screen);
    size_t last = count != 0 ? count - 1 : 0;
    if (rows < 0) {
        screen->skip -= via_min(screen->skip, (size_t)-rows);
    } else {
        screen->skip = via_min(screen->skip + (size_t)rows, last);
    }
}

static void take_key(struct screen *screen, int key)
{
    int page = via_max(LINES - 6, 1);
    switch (key) {
    case 'q':
    case 'Q':
        screen->ended = true;
        break;
    case 'a':
        show(screen, VIA_TOP_ALL);
        break;
    case 'h':
        show(screen, VIA_TOP_HOSTS);
        break;
    case 'l':
        show(screen, VIA_TOP_LINKS);
        break;
    case 'c':
        show(screen, VIA_TOP_CONNECTIONS);
        break;
    case 'j':
        show(screen, VIA_TOP_JOBS);
        break;
    case ' ':
        screen->paused = !screen->paused;
        break;
    case KEY_REDRAW:
        clearok(stdscr, TRUE);
        break;
    case '+':
        screen->interval_ms = via_min(screen->interval_ms * 2, INTERVAL_MS_MAX);
        break;
    case '-':
        screen->interval_ms = via_max(screen->interval_ms / 2, INTERVAL_MS_MIN);
        break;
    case KEY_UP:
        scroll_by(screen, -1);
        break;
    case KEY_DOWN:
        scroll_by(screen, 1);
        break;
    case KEY_PPAGE:
        scroll_by(screen, -page);
        break;
    case KEY_NPAGE:
        scroll_by(screen, page);
        break;
    default:
        break;
    }
}

/* Handles keys until the next collection is due. A hangup of the terminal ends the program. */
static int wait_for_keys(struct screen *screen, uint64_t due_ms, struct via_error *err)
{
    int rc = 0;
    while (!screen->ended && !is_end_requested && rc == 0) {
        uint64_t now = now_ms();
        if (now >= due_ms && !screen->paused) {
            break;
        }
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        int left_ms = screen->paused ? 1000 : (int)(due_ms - now);
        int ready = poll(&input, 1, left_ms);
        if (ready > 0 && (input.revents & (POLLHUP | POLLERR | POLLNVAL))) {
            screen->ended = true;
        }
        for (int key; (key = getch()) != ERR;) {
            take_key(screen, key);
            ready = 1;
        }
        /* A signal may have changed the size of the window. */
        if (ready != 0 && !screen->ended) {
            rc = draw(screen, err);
        }
    }
    return rc;
}

static int run(struct screen *screen, struct via_error *err)
{
    int rc = 0;
    while (!screen->ended && !is_end_requested && rc == 0) {
        uint64_t due_ms = now_ms() + screen->interval_ms;
        rc = via_top_collect(&screen->model, screen->name, err);
        rc = rc == 0 ? draw(screen, err) : rc;
        rc = rc == 0 ? wait_for_keys(screen, due_ms, err) : rc;
    }
    return rc;
}

static void open_screen(void)
{
    cbreak();
    noecho();
    nonl();
    nodelay(stdscr, TRUE);
    keypad(stdscr, TRUE);
    curs_set(0);
    if (has_colors()) {
        start_color();
        use_default_colors();
        init_pair(1, COLOR_CYAN, -1);
        init_pair(2, COLOR_GREEN, -1);
        init_pair(3, COLOR_RED, -1);
    }
}

int via_top_screen(const char *name, unsigned interval_ms, struct via_error *err)
{
    struct screen screen = {.name = name, .interval_ms = interval_ms, .section = VIA_TOP_ALL};
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        return via_error_set(err, -ENOTTY,
                             "standard output: no terminal; --once prints one picture");
    }
    setlocale(LC_CTYPE, "");
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    if (terminal == NULL) {
        return via_error_set(err, -ENOTTY,
                             "the terminal: TERM names a type that is unknown on this machine");
    }
    struct sigaction end = {.sa_handler = on_signal};
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    open_screen();
    int rc = run(&screen, err);
    endwin();
    delscreen(terminal);
    via_top_lines_free(&screen.lines);
    via_top_release(&screen.model);
    return rc;
}
