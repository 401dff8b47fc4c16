package hostview

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/machine/finding"
)

func packed(width, high int, sizes ...[2]int) string {
	var items []*picture
	for _, s := range sizes {
		items = append(items, &picture{W: s[0], H: s[1]})
	}
	var lines []string
	p := pack(items, width, high, func(_ *picture, i int, at rect) {
		lines = append(lines, fmt.Sprintf("%d:%d,%d+%dx%d", i, at.X, at.Y, at.W, at.H))
	})
	return strings.Join(append(lines, fmt.Sprintf("%dx%d", p.W, p.H)), " ")
}

func TestPicturesArePackedInRows(t *testing.T) {
	w := [2]int{100, 50}
	for _, tt := range []struct {
		name        string
		width, high int
		sizes       [][2]int
		want        string
	}{
		{"none", 500, 0, nil, "0x0"},
		{"one", 500, 0, [][2]int{w}, "0:0,0+100x50 100x50"},
		{"as many as fit", 212, 0, [][2]int{w, w}, "0:0,0+100x50 1:112,0+100x50 212x50"},
		{"a row more", 211, 0, [][2]int{w, w}, "0:0,0+100x50 1:0,62+100x50 100x112"},
		{"rows of one width are even", 324, 0, [][2]int{w, w, w, w},
			"0:0,0+100x50 1:112,0+100x50 2:0,62+100x50 3:112,62+100x50 212x112"},
		{"those in a row are equally high", 500, 0, [][2]int{{100, 50}, {200, 80}},
			"0:0,0+100x80 1:112,0+200x80 312x80"},
		{"the last row fills what is to be filled", 500, 100, [][2]int{w, w}, "0:0,0+100x100 1:112,0+100x100 212x100"},
		{"low ones stand above each other", 500, 0, [][2]int{{200, 130}, w, w},
			"0:0,0+200x130 1:212,0+100x50 2:212,62+100x50 312x130"},
		{"but not more than there is height for", 500, 0, [][2]int{{200, 111}, w, w},
			"0:0,0+200x111 1:212,0+100x111 2:324,0+100x111 424x111"},
		{"columns are filled where rows would be half empty", 212, 200, [][2]int{{100, 90}, {100, 20}, {100, 60},
			{100, 50}}, "0:0,0+100x90 1:0,102+100x98 2:112,0+100x60 3:112,72+100x128 212x200"},
		{"one that is too wide stands alone", 150, 0, [][2]int{{300, 10}, w}, "0:0,0+300x10 1:0,22+100x50 300x72"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := packed(tt.width, tt.high, tt.sizes...); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Pictures keep at least their size, inside the whole.
func TestPackedPicturesDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []*picture
		for range rapid.IntRange(1, 30).Draw(t, "items") {
			items = append(items, &picture{W: rapid.SampledFrom([]int{50, 100, 300}).Draw(t, "w"),
				H: rapid.IntRange(1, 200).Draw(t, "h")})
		}
		width := rapid.IntRange(300, 1000).Draw(t, "width")
		var at []rect
		high := rapid.IntRange(0, 2000).Draw(t, "high")
		p := pack(items, width, high, func(_ *picture, i int, r rect) {
			if i != len(at) {
				t.Fatalf("item %d comes after %d", i, len(at))
			}
			at = append(at, r)
		})
		if p.W > width || p.H < high {
			t.Fatalf("%d x %d, want at most %d wide and at least %d high", p.W, p.H, width, high)
		}
		for i, a := range at {
			if a.W < items[i].W || a.H < items[i].H || a.right() > p.W || a.bottom() > p.H {
				t.Fatalf("item %d of %d x %d is at %v in %d x %d", i, items[i].W, items[i].H, a, p.W, p.H)
			}
			for j, b := range at[:i] {
				if a.X < b.right() && b.X < a.right() && a.Y < b.bottom() && b.Y < a.bottom() {
					t.Fatalf("%d at %v and %d at %v overlap", i, a, j, b)
				}
			}
		}
	})
}

func TestMarksAreDrawnAsFarAsThereIsRoom(t *testing.T) {
	all := []mark{{"RL001", finding.Error, ""}, {"RL002", finding.Warning, ""}, {"RL003", finding.Info, ""}}
	for _, tt := range []struct {
		room int
		want string
	}{
		{300, "RL001 RL002 RL003"}, {130, "RL001 RL002 +1"}, {80, "RL001 +2"}, {12, ""}, {5, "no sign"},
	} {
		p := &picture{}
		p.marks(0, 10, all, tt.room)
		var got []string
		w := 0
		for _, s := range p.Texts {
			got = append(got, s.Text)
			w = max(w, s.right())
		}
		for _, s := range p.Marks {
			w = max(w, s.right())
		}
		words := strings.Join(got, " ")
		if len(p.Marks) == 0 {
			words = "no sign"
		}
		if words != tt.want || w > tt.room+1 {
			t.Errorf("in %d pixels: %q, %d wide; want %q", tt.room, words, w, tt.want)
		}
	}
}

func TestAPictureIsMovedAsAWhole(t *testing.T) {
	q := &picture{}
	q.box(rect{1, 1, 2, 2}, "c", 0, "")
	q.line("l", 10, "", [2]int{0, 0}, [2]int{5, 5})
	q.text(3, 20, "x", fontSmall, "", 50)
	q.Cells = []cellShape{{rect: rect{4, 4, 1, 1}}}
	q.Marks = []markShape{{rect: rect{5, 5, 1, 1}}}
	q.Tops = []boxShape{{rect: rect{6, 6, 1, 1}}}
	p := &picture{}
	p.place(q, 100, 200)
	if p.Boxes[0].X != 101 || p.Lines[0].Points[1] != [2]int{105, 205} || p.Texts[0].X != 103 ||
		p.Texts[0].Y != 200+20-11 || p.Cells[0].Y != 204 || p.Marks[0].X != 105 || p.Tops[0].X != 106 {
		t.Errorf("%+v", p)
	}
	if q.Lines[0].Points[1] != [2]int{5, 5} {
		t.Error("the original moved too")
	}
}

func TestCoresAreSmallerWhereThereAreMany(t *testing.T) {
	cells := func(n int) []cacheCells { return []cacheCells{{Known: true, Cells: make([]coreCell, n)}} }
	last := 100
	for _, n := range []int{8, 97, 300} {
		p := &picture{}
		h := p.cells(nil, cells(n), 0, 0, 340, n)
		if len(p.Cells) != n || p.Cells[0].W > last || h <= 0 {
			t.Errorf("%d cores: %d cells of %d pixels, %d high", n, len(p.Cells), p.Cells[0].W, h)
		}
		last = p.Cells[0].W
	}
	p := &picture{}
	if h := p.cells(nil, nil, 0, 0, 100, 0); h != 0 || len(p.Boxes) != 0 {
		t.Errorf("no cores are %d high", h)
	}
}

func TestCPUsFitTheirLine(t *testing.T) {
	for _, list := range []string{"0-127", "0,3,9,27,81,100,105,107,111,115,119,121,125,127", "0-126:2",
		"1000-1003,2000-2003,3000-3003,4000-4003"} {
		for _, width := range []int{100, 150, 340} {
			if got := cpuLine(set(list), width); fontSmall.Width(got) > width && !strings.HasSuffix(got, " CPUs") {
				t.Errorf("%s in %d pixels is %q", list, width, got)
			}
		}
	}
	if got := cpuLine(set(""), 100); got != "no CPUs" {
		t.Errorf("got %q", got)
	}
}
