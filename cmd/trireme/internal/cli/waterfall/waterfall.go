// Package waterfall draws a trace as text: a row per span, bars over one scale of time, what the pod waited for filled
// in. It is pure: the same trace and width give the same text. What is to be seen package trace has found out.
package waterfall

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"trireme.dev/client/tracing"
	"trireme.dev/cmd/trireme/internal/cli/trace"
)

const (
	// Unrecorded is what stands for time that no span covers.
	Unrecorded = "(nothing recorded)"
	minBar     = 12
	minName    = 24
	numbers    = 2 * 9 // two columns of durations
	// alike is from how many spans of one name in a row they are shown as one.
	alike = 4
)

// Options say how to draw.
type Options struct {
	// Width of the text; what does not fit is shortened. At least 80.
	Width int
	// Colour writes ANSI colours.
	Colour bool
	// All shows every span; otherwise many of one name that follow each other are one row, and the gateway's stages are
	// left out where they took no time worth telling.
	All bool
}

// row is a line of the picture.
type row struct {
	text       string
	service    string
	start, end time.Time
	// filled are the parts that the critical path has.
	filled []trace.Segment
	marked bool
	wait   bool
	failed string
	depth  int
	gap    bool
	moment bool // it marks a moment
}

// Draw draws the spans of a trace.
func Draw(t *trace.Trace, o Options) string {
	if len(t.Spans) == 0 {
		return ""
	}
	p := &picture{t: t, o: o, on: t.OnPath(), own: map[*trace.Span][]trace.Segment{}}
	for _, s := range t.Path {
		if s.Span != nil {
			p.own[s.Span] = append(p.own[s.Span], s)
		}
	}
	for _, n := range p.grouped(t.Roots) {
		p.add(n, 0)
	}
	p.insertGaps()
	return p.draw()
}

type picture struct {
	t    *trace.Trace
	o    Options
	on   map[*trace.Span]bool
	own  map[*trace.Span][]trace.Segment
	rows []row
}

// group is spans that share a row.
type group struct {
	nodes []*trace.Node
}

// grouped puts many spans of one name, without children and in a row, together.
func (p *picture) grouped(nodes []*trace.Node) []group {
	if !p.o.All {
		nodes = slices.DeleteFunc(slices.Clone(nodes), passing)
	}
	var out []group
	for i := 0; i < len(nodes); {
		n := i + 1
		for n < len(nodes) && !p.o.All && single(nodes[i]) && single(nodes[n]) &&
			nodes[n].Name == nodes[i].Name && nodes[n].Service == nodes[i].Service {
			n++
		}
		if n-i >= alike {
			out = append(out, group{nodes[i:n]})
		} else {
			for _, node := range nodes[i:n] {
				out = append(out, group{[]*trace.Node{node}})
			}
		}
		i = n
	}
	return out
}

// stages of the gateway stand in every call. They are worth a row where one took long or refused the call.
var stages = []string{"Authentication", "Audit", "Authorization", "Admission"}

// noticeable is how long a stage takes before it is shown.
const noticeable = time.Millisecond

func passing(n *trace.Node) bool {
	return len(n.Children) == 0 && !n.Failed && n.Duration() < noticeable && slices.Contains(stages, n.Name)
}

func single(n *trace.Node) bool {
	return len(n.Children) == 0 && !n.Failed && n.Name != trace.ReadySpan
}

func (p *picture) add(g group, depth int) {
	first := g.nodes[0]
	r := row{
		text: first.Title() + detail(first.Span), service: first.Service, start: first.Start, end: first.End,
		wait: first.Wait(), depth: depth, moment: first.Name == trace.ReadySpan || first.Duration() == 0,
	}
	if len(g.nodes) > 1 {
		r.text = fmt.Sprintf("%s ×%d", first.Title(), len(g.nodes))
	}
	for _, n := range g.nodes {
		r.filled = append(r.filled, p.own[n.Span]...)
		r.marked = r.marked || p.on[n.Span]
		if n.End.After(r.end) {
			r.end = n.End
		}
	}
	if first.Failed {
		r.failed = cmp.Or(first.Message, "failed")
	}
	p.rows = append(p.rows, r)
	for _, c := range p.grouped(first.Children) {
		p.add(c, depth+1)
	}
}

// detail is the one attribute that tells a span from others of its name.
func detail(s *trace.Span) string {
	for _, key := range []string{
		string(tracing.KeyQueue), string(tracing.KeyPlugin), string(tracing.KeyContainer), string(tracing.KeyVolume),
		string(tracing.KeyPhase), string(tracing.KeyImage),
	} {
		if v := s.Attributes[key]; v != "" {
			return " " + v
		}
	}
	return ""
}

// insertGaps puts each gap before the first row, of those that are not details, that begins after it.
func (p *picture) insertGaps() {
	for _, g := range p.t.Gaps {
		gap := row{text: Unrecorded, start: g.Start, end: g.End, gap: true, marked: true, depth: 1}
		at := slices.IndexFunc(p.rows, func(r row) bool { return !r.gap && r.depth <= 1 && !r.start.Before(g.End) })
		if at < 0 {
			at = len(p.rows)
		}
		p.rows = slices.Insert(p.rows, at, gap)
	}
}

func (p *picture) draw() string {
	width := max(80, p.o.Width)
	name, service := minName, len("SERVICE")
	for _, r := range p.rows {
		name = max(name, utf8.RuneCountInString(r.text)+2*r.depth)
		service = max(service, utf8.RuneCountInString(r.service))
	}
	service = min(service, 16)
	name = min(name, max(minName, (width-service-numbers)*45/100))
	bar := max(minBar, width-2-name-2-service-2-numbers-2)
	s := scale{start: p.t.Start, cells: bar}
	for _, r := range p.rows {
		if r.end.After(s.end) {
			s.end = r.end
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  %s  %s  %s  %8s %8s\n", pad("SPAN", name), pad("SERVICE", service), pad(s.ruler(), bar), "START", "TOOK")
	for _, r := range p.rows {
		mark := "  "
		if r.marked {
			mark = p.paint("* ", yellow)
		}
		cells, colour := s.drawn(r), p.colour(r)
		text := pad(shorten(strings.Repeat("  ", r.depth)+r.text, name), name)
		if r.gap {
			text = p.paint(text, red)
		}
		fmt.Fprintf(&b, "%s%s  %s  %s  %8s %8s\n", mark, text, p.paint(pad(shorten(r.service, service), service), dim),
			p.bar(cells, bar, colour), Duration(r.start.Sub(p.t.Start)), Duration(r.end.Sub(r.start)))
		if r.failed != "" {
			fmt.Fprintf(&b, "  %s%s\n", strings.Repeat("  ", r.depth+1),
				p.paint(shorten(strings.Join(strings.Fields("error: "+r.failed), " "), width-4-2*r.depth), red))
		}
	}
	return b.String()
}

const (
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (p *picture) colour(r row) string {
	switch {
	case r.gap || r.failed != "":
		return red
	case r.wait:
		return yellow
	}
	return green
}

func (p *picture) paint(text, code string) string {
	if !p.o.Colour || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// bar writes cells: runs of one sort in one colour.
func (p *picture) bar(cells []rune, width int, colour string) string {
	var b strings.Builder
	for i := 0; i < len(cells); {
		n := i
		for n < len(cells) && cells[n] == cells[i] {
			n++
		}
		text := string(cells[i:n])
		switch cells[i] {
		case thin:
			text = p.paint(text, dim+";"+colour)
		default:
			text = p.paint(text, colour)
		}
		b.WriteString(text)
		i = n
	}
	b.WriteString(strings.Repeat(" ", width-len(cells)))
	return b.String()
}

const (
	full  = '█' // the pod waited for this
	thin  = '─' // this went on beside it
	short = '▏' // too short for a cell
	none  = '░' // nothing was recorded
	// moment has no duration.
	moment = '◆'
)

// scale maps time to cells.
type scale struct {
	start, end time.Time
	cells      int
}

func (s scale) cell(t time.Time) int {
	all := s.end.Sub(s.start)
	if all <= 0 {
		return 0
	}
	return int(float64(t.Sub(s.start)) / float64(all) * float64(s.cells))
}

func (s scale) drawn(r row) []rune {
	from := min(s.cell(r.start), s.cells-1)
	to := max(from, min(s.cell(r.end), s.cells))
	if r.moment {
		to = from
	}
	sort, out := thin, []rune(strings.Repeat(" ", from))
	if r.gap {
		sort = none
	}
	if to <= from {
		switch {
		case r.moment:
			sort = moment
		case sort == thin:
			sort = short
		}
		return append(out, sort)
	}
	for range to - from {
		out = append(out, sort)
	}
	for _, f := range r.filled {
		a, b := s.cell(f.Start), s.cell(f.End)
		for i := max(a, from); i < min(b, to); i++ {
			out[i] = full
		}
	}
	return out
}

// ruler labels the scale at its quarters.
func (s scale) ruler() string {
	out := []rune(strings.Repeat(" ", s.cells))
	free := 0
	for i := range 4 {
		at := s.cells * i / 4
		label := []rune("|" + Duration(s.end.Sub(s.start)*time.Duration(i)/4))
		if at < free || at+len(label) > s.cells {
			continue
		}
		copy(out[at:], label)
		free = at + len(label) + 1
	}
	return string(out)
}

// Duration writes a duration with three digits or so.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-d)
	}
	switch ms := float64(d) / float64(time.Millisecond); {
	case d < 500*time.Nanosecond:
		return "0"
	case ms < 1:
		return fmt.Sprintf("%.0fµs", ms*1000)
	case ms < 10:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0fms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.2fs", ms/1000)
	case ms < 600_000:
		return fmt.Sprintf("%.1fs", ms/1000)
	}
	return d.Round(time.Second).String()
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

func shorten(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}
