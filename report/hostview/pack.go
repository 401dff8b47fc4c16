package hostview

import (
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// pack places pictures in rows of at most width pixels, as evenly as it can where all are of one
// width. Low ones of one width that follow each other stand in one column. Those in a row are made
// equally high, and the last row so high that the whole has at least the height high. frame draws
// what is around each.
func pack(items []*picture, width, high int, frame func(p *picture, i int, at rect)) *picture {
	out := &picture{}
	if len(items) == 0 {
		return out
	}
	rows := packRows(stacked(items), width)
	for n, row := range rows {
		x, tall := 0, 0
		for _, c := range row {
			tall = max(tall, c.H)
		}
		// Only the last row can grow without moving what is below it.
		if n == len(rows)-1 {
			tall = max(tall, high-out.H)
		}
		for _, c := range row {
			y := out.H
			for i := c.first; i < c.end; i++ {
				at := rect{x, y, items[i].W, items[i].H}
				// Only a picture that is alone in its column is made as high as the row. In a stack, none would be the
				// right one to grow.
				if c.end-c.first == 1 {
					at.H = tall
				}
				frame(out, i, at)
				out.place(items[i], x, y)
				y += at.H + gap
			}
			x += c.W + gap
			out.W = max(out.W, x-gap)
		}
		out.H += tall + gap
	}
	out.H -= gap
	return out
}

// A stack is pictures above each other: items first to before end.
type stack struct{ first, end, W, H int }

// stacked puts pictures that follow each other and are equally wide into stacks no higher than the highest picture.
func stacked(items []*picture) []stack {
	highest := lists.Max(items, func(q *picture) int { return q.H })
	var out []stack
	for i, q := range items {
		if n := len(out) - 1; n >= 0 && out[n].W == q.W && out[n].H+gap+q.H <= highest {
			out[n].end, out[n].H = i+1, out[n].H+gap+q.H
			continue
		}
		out = append(out, stack{i, i + 1, q.W, q.H})
	}
	return out
}

// packRows breaks stacks into rows of at most width pixels. Where widths differ, each row takes as many as fit, in
// their order.
func packRows(all []stack, width int) [][]stack {
	perRow := len(all)
	if same := !slices.ContainsFunc(all, func(s stack) bool { return s.W != all[0].W }); same {
		fit := max(1, (width+gap)/(all[0].W+gap))
		// As even as can be: five of a width in rows of three and two, and not of four and one.
		rows := (len(all) + fit - 1) / fit
		perRow = (len(all) + rows - 1) / rows
	}
	var out [][]stack
	x := 0
	for _, s := range all {
		if n := len(out) - 1; n >= 0 && len(out[n]) < perRow && x+s.W <= width {
			out[n] = append(out[n], s)
		} else {
			out = append(out, []stack{s})
			x = 0
		}
		x += s.W + gap
	}
	return out
}
