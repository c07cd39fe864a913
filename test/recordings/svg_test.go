package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got := parse("waiting (1s)\r\x1b[K\x1b[33m* \x1b[0mSPAN \x1b[2;32m──\x1b[0m\r\nnext\r\n\r\n")
	want := [][]span{
		{{text: "* ", colour: "33"}, {text: "SPAN "}, {text: "──", colour: "32", dim: true}},
		{{text: "next"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(span{})); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestPictureIsXML(t *testing.T) {
	svg := picture("trireme trace a&b", parse("a <b>  \x1b[32m██─▏\x1b[0m 1ms"), 20)
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	texts, rects := []string{}, 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); text != "" {
				texts = append(texts, text)
			}
		case xml.StartElement:
			if token.Name.Local == "rect" {
				rects++
			}
		}
	}
	if diff := cmp.Diff([]string{"$", "trireme trace a&b", "a <b>", "1ms"}, texts); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
	if rects != 1+3 {
		t.Errorf("%d rectangles, want the ground and three of the bar", rects)
	}
}
