package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/inspect"
)

// The help has exactly the kinds in the error about an unknown text.
func TestHelpOfInspectListsAllKindsOfTexts(t *testing.T) {
	t.Parallel()
	help, err := helpFiles.ReadFile("help/inspect.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(help), "The content decides the format:\n\n")
	list, _, _ = strings.Cut(list, "\n\n")
	word := regexp.MustCompile(`--?\w+|/?\w[\w/.]*`)
	listed := word.FindAllString(list, -1)
	_, err = inspect.ReadStream(t.Context(), strings.NewReader("Dear all"), "mail")
	_, known, found := strings.Cut(err.Error(), "or zstd), ")
	if !found {
		t.Fatalf("the error lists no kinds: %v", err)
	}
	// The help expresses these differently, or they are no part of a kind's name.
	same := map[string]string{"domain": "dumpxml", "IOMMU": "/sys/kernel/iommu_groups", "groups": "find", "host": "",
		"of": "", "vSphere": "", "govc": "", "object.save": "", "or": ""}
	for _, w := range word.FindAllString(known, -1) {
		if other, ok := same[w]; ok {
			w = other
		}
		if w != "" && !slices.Contains(listed, w) {
			t.Errorf("the help does not list %q of the kinds that are read", w)
		}
	}
	tools := word.FindAllString(known, -1)
	_, parts, _ := strings.Cut(list, "a part of a host")
	for _, w := range word.FindAllString(parts, -1) {
		own := []string{"-p", "-J", "--query", "-v", "dumpxml", "parts", "too", "and", "dev", "find",
			"/sys/kernel/iommu_groups", "-br", "-gpu"}
		if !slices.Contains(own, w) && !slices.Contains(tools, w) {
			t.Errorf("the help lists %q, which is in no name of a kind that is read", w)
		}
	}
}
