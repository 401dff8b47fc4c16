package lab

import (
	"slices"
	"testing"
)

func TestHostNames(t *testing.T) {
	l, err := Parse("lab.yaml", []byte("name: pair\nnodes:\n  vm00: {nics: 2}\n  vm01: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"10.0.0.1 vm00", "10.0.1.1 vm00-eth1", "10.0.0.2 vm01"}
	if got := l.HostNames(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
