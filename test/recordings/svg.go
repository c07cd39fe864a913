package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// span is a run of characters in one style.
type span struct {
	text   string
	colour string // an SGR number such as 32; empty for the default
	dim    bool
}

// parse reads what a program wrote to a terminal: text and SGR escapes. Other escapes, which only move the cursor on
// lines that are replaced, take what they replaced with them.
func parse(text string) [][]span {
	var out [][]span
	style := span{}
	for _, line := range strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n") {
		// What was shown while something was waited for ends with "go back, clear".
		if i := strings.LastIndex(line, "\r\x1b[K"); i >= 0 {
			line = line[i+len("\r\x1b[K"):]
		}
		var spans []span
		for line != "" {
			before, after, escape := strings.Cut(line, "\x1b[")
			if before != "" {
				spans = append(spans, span{before, style.colour, style.dim})
			}
			if !escape {
				break
			}
			codes, rest, _ := strings.Cut(after, "m")
			for _, code := range strings.Split(codes, ";") {
				switch code {
				case "0", "":
					style = span{}
				case "2":
					style.dim = true
				default:
					style.colour = code
				}
			}
			line = rest
		}
		out = append(out, spans)
	}
	return out
}

const (
	cellW, cellH = 8.4, 18
	margin       = 16
	bar          = 34 // of the window's title
)

var palette = map[string]string{"": "#d7dae0", "31": "#f7768e", "32": "#8fcf6b", "33": "#e5c07b", "36": "#61c6d6"}

// picture draws lines below the command that printed them.
func picture(command string, lines [][]span, columns int) []byte {
	lines = append([][]span{{{text: "$ ", colour: "36"}, {text: command}}}, lines...)
	for _, l := range lines {
		n := 0
		for _, s := range l {
			n += len([]rune(s.text))
		}
		columns = max(columns, n)
	}
	width, height := float64(columns)*cellW+2*margin, len(lines)*cellH+2*margin+bar
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, escape(command))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#1b1e27"/>`+"\n")
	for i, colour := range []string{"#f7768e", "#e5c07b", "#8fcf6b"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="18" r="6" fill="%s"/>`+"\n", 20+20*i, colour)
	}
	b.WriteString(`<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14" xml:space="preserve">` + "\n")
	for row, l := range lines {
		column := 0
		for _, s := range l {
			drawSpan(&b, s, column, row)
			column += len([]rune(s.text))
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// drawSpan writes text as text, and the characters of bars as rectangles: fonts do not agree on these.
func drawSpan(b *bytes.Buffer, s span, column, row int) {
	fill := palette[s.colour]
	if fill == "" {
		fill = palette[""]
	}
	opacity := ""
	if s.dim {
		opacity = ` opacity="0.6"`
	}
	top := float64(bar + margin + row*cellH - cellH/2)
	runes := []rune(s.text)
	for i := 0; i < len(runes); {
		n := i
		block := blockOf(runes[i])
		for n < len(runes) && (runes[n] == runes[i] && block.height > 0 || block.height == 0 && blockOf(runes[n]).height == 0) {
			n++
		}
		x := margin + float64(column+i)*cellW
		switch text := string(runes[i:n]); {
		case block.height > 0:
			w := float64(n-i) * cellW * block.width
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" opacity="%.2f"/>`+"\n",
				x, top+(cellH-block.height*cellH)/2, w, block.height*cellH, fill, block.opacity)
		case strings.TrimSpace(text) != "":
			lead := len(text) - len(strings.TrimLeft(text, " "))
			trimmed := strings.TrimSpace(text)
			fmt.Fprintf(b, `<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s"%s>%s</text>`+"\n", x+float64(lead)*cellW, top+13,
				float64(len([]rune(trimmed)))*cellW, fill, opacity, escape(trimmed))
		}
		i = n
	}
}

// block is a character as a part of its cell.
type block struct{ width, height, opacity float64 }

func blockOf(r rune) block {
	switch r {
	case '█':
		return block{1, 0.72, 1}
	case '─':
		return block{1, 0.14, 0.75}
	case '▏':
		return block{0.2, 0.72, 1}
	case '░':
		return block{1, 0.72, 0.3}
	}
	return block{}
}

func escape(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes everything
	return b.String()
}
