package show

import (
	"testing"
)

func TestFold(t *testing.T) {
	const wide = "one two three four five six seven eight nine ten eleven twelve thirteen"
	for name, c := range map[string]struct {
		in, want string
		width    int
	}{
		"no terminal":      {wide + "\n", wide + "\n", 0},
		"a line that fits": {"short\n\n  x\n", "short\n\n  x\n", 60},
		"between words": {wide + "\nx",
			"one two three four five six seven eight nine ten eleven\n  twelve thirteen\nx", 60},
		"below the column": {"ok    QEMU  " + wide + "\n",
			"ok    QEMU  one two three four five six seven eight nine ten\n            eleven twelve thirteen\n", 60},
		"a column at the end": {wide + "  x y\n",
			"one two three four five six seven eight nine ten eleven\n  twelve thirteen  x y\n", 60},
		"below its beginning": {"    " + wide,
			"    one two three four five six seven eight nine ten eleven\n      twelve thirteen", 60},
		"colours have no width": {"\x1b[32mok\x1b[0m    QEMU  " + wide,
			"\x1b[32mok\x1b[0m    QEMU  one two three four five six seven eight nine ten\n" +
				"            eleven twelve thirteen", 60},
		"a word that is too long": {"https://example.com/0123456789/0123456789/0123456789/0123456789 x",
			"https://example.com/0123456789/0123456789/0123456789/0123456789\n  x", 60},
	} {
		if got := Fold(c.in, c.width); got != c.want {
			t.Errorf("%s: got\n%q, want\n%q", name, got, c.want)
		}
	}
}

func TestReflowJoinsProseAlone(t *testing.T) {
	in := "This is a paragraph that was\nbroken for a narrow one.\n\n  a  list\n  b  of two\n\nThe end\nof it.\n"
	want := "This is a paragraph that was broken for a narrow one.\n\n  a  list\n  b  of two\n\nThe end of it."
	if got := Reflow(in, 80); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Reflow(in, 0); got != in {
		t.Errorf("without a terminal: %q", got)
	}
}

func TestReflowJoinsADescriptionInColumns(t *testing.T) {
	in := "  texts of a host    lscpu, numactl,\n                     rdma link\n" +
		"  an archive         of /sys\n      and a list\n"
	want := "  texts of a host    lscpu, numactl, rdma link\n  an archive         of /sys\n      and a list"
	if got := Reflow(in, 80); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
