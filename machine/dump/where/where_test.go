package where

import (
	"errors"
	"strings"
	"testing"
)

func TestError(t *testing.T) {
	for _, tt := range []struct {
		err  Error
		want string
	}{
		{Error{"h.xml", 3, errors.New("odd")}, "h.xml:3: odd"},
		{Error{"h.xml", 0, errors.New("odd")}, "h.xml: odd"},
		{Error{"", 3, errors.New("odd")}, "line 3: odd"},
		{Error{"", 0, errors.New("odd")}, "odd"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%#v says %q; want %q", tt.err, got, tt.want)
		}
	}
}

func TestClip(t *testing.T) {
	if got := Clip(strings.Repeat("x", 61)); got != strings.Repeat("x", 60)+"..." {
		t.Errorf("Clip of 61 bytes is %q", got)
	}
	if got := Clip("short"); got != "short" {
		t.Errorf("Clip of a short text is %q", got)
	}
}
