package emulate

import (
	"errors"
	"testing"

	"github.com/rackless/rackless/internal/userdirs"
)

func TestACopyHasOneEndInAHost(t *testing.T) {
	for arg, want := range map[string][2]string{
		"try:/root/x": {"try", "/root/x"}, "try:": {"try", ""}, "try:a:b": {"try", "a:b"},
		"./a:b": {}, "/x": {}, ":/x": {}, "": {},
	} {
		host, path, ok := inHost(arg)
		if !ok {
			host, path = "", ""
		}
		if got := [2]string{host, path}; got != want {
			t.Errorf("%q: got %q, want %q", arg, got, want)
		}
	}
	if got := Within("try", ":/x"); got != "try:/x" {
		t.Error(got)
	}
	if got := Within("try", "x"); got != "x" {
		t.Error(got)
	}
	d := userdirs.Dirs{Run: t.TempDir()}
	for _, c := range [][2]string{{"a", "b"}, {"try:/a", "try:/b"}} {
		if err := Copy(t.Context(), d, c[0], c[1], nil); !errors.Is(err, ErrOneSide) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if err := Copy(t.Context(), d, "copy.go", "try:/b", nil); err == nil || errors.Is(err, ErrOneSide) {
		t.Errorf("a host that is not there: %v", err)
	}
}
