//go:build linux

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/docs"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/message"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/doctor"
	"github.com/rackless/rackless/rack/verify"
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/study/record"
)

// publicTexts returns texts of the program whose words a bundle keeps. They leave out the catalogue's links to reports
// of users, which have names.
func publicTexts() []string {
	texts := []string{version, "Debian GNU Ubuntu Fedora Rocky Red Hat SUSE Arch Alpine", string(docs.LabSchema),
		string(docs.PlanSchema), string(docs.HostSchema)}
	files, _ := helpFiles.ReadDir("help") // they are embedded
	for _, f := range files {
		text, _ := helpFiles.ReadFile("help/" + f.Name())
		texts = append(texts, string(text))
	}
	for _, c := range finding.Catalogue() {
		texts = append(texts, c.ID, c.Name, c.Title, c.Summary, c.Reads, c.Means, c.Fix, c.Consequence, c.ShortFix)
	}
	for _, k := range message.Kinds() {
		texts = append(texts, k.Name, k.Short, k.Meaning, k.LookAt)
	}
	for _, e := range tool.Engines() {
		texts = append(texts, e.Name)
		for _, name := range e.Metrics() {
			m := bench.MetricOf(name)
			texts = append(texts, m.Name, m.Unit, m.Label)
		}
	}
	return texts
}

// bundleKeys returns the keys of the documents in a bundle.
func bundleKeys() []string {
	var keys []string
	for _, v := range []any{plan.Plan{}, record.Record{}, verify.Record{}, doctor.Report{}, bundleVersions{},
		journalStep{}, rack.Description{}, tables.FabricSnapshot{}} {
		keys = append(keys, jsonKeys(reflect.TypeOf(v), map[reflect.Type]bool{})...)
	}
	return keys
}

// jsonKeys returns the keys of the JSON of a type, and of all types in it.
func jsonKeys(t reflect.Type, seen map[reflect.Type]bool) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array ||
		t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key != "" && key != "-" {
			keys = append(keys, key)
		}
		keys = append(keys, jsonKeys(f.Type, seen)...)
	}
	return keys
}

// people returns the names of the users of this machine: of the one who runs this program, and of all accounts of
// people.
func people(env func(string) string) []string {
	names := []string{env("USER"), env("LOGNAME"), env("SUDO_USER"), filepath.Base(env("HOME"))}
	accounts, _ := os.ReadFile("/etc/passwd") // without it, unknown words are replaced all the same
	for line := range strings.Lines(string(accounts)) {
		f := strings.Split(line, ":")
		const firstPerson, nobody = 1000, 65534
		if len(f) < 7 {
			continue
		}
		if uid, err := strconv.Atoi(f[2]); err == nil && uid >= firstPerson && uid != nobody {
			names = append(names, f[0], f[4], filepath.Base(f[5]))
		}
	}
	return slices.DeleteFunc(names, func(s string) bool { return s == "" || s == "." || s == "/" || s == "root" })
}
