package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func verbs() *cobra.Command {
	root := &cobra.Command{Use: "prog"}
	study := &cobra.Command{Use: "study"}
	nothing := func(*cobra.Command, []string) {}
	up, run := &cobra.Command{Use: "up", Run: nothing}, &cobra.Command{Use: "run", Run: nothing}
	hidden := &cobra.Command{Use: "daemon", Run: nothing, Hidden: true}
	for _, c := range []*cobra.Command{up, run, hidden} {
		c.Flags().Int("wait", 1, "seconds")
	}
	root.AddCommand(up, study, hidden)
	study.AddCommand(run)
	return root
}

func TestDefaults(t *testing.T) {
	for _, tt := range []struct {
		name, verb, args, env, file string
		want                        string
	}{
		{"none", "up", "", "", "", "1"},
		{"file", "up", "", "", "up: {wait: 2}", "2"},
		{"all verbs", "up", "", "", "all: {wait: 3}", "3"},
		{"the verb before all", "up", "", "", "all: {wait: 3}\nup: {wait: 2}", "2"},
		{"another verb's", "up", "", "", "study run: {wait: 2}", "1"},
		{"a verb of two words", "study run", "", "", "study run: {wait: 2}", "2"},
		{"environment before file", "up", "", "PROG_UP_WAIT=4", "up: {wait: 2}", "4"},
		{"environment of two words", "study run", "", "PROG_STUDY_RUN_WAIT=4", "", "4"},
		{"command line before all", "up", "--wait=5", "PROG_UP_WAIT=4", "up: {wait: 2}", "5"},
		{"hidden", "daemon", "", "PROG_DAEMON_WAIT=4", "all: {wait: 3}", "1"},
		{"wrong in the environment", "up", "", "PROG_UP_WAIT=x", "", "variable PROG_UP_WAIT"},
		{"wrong in the file", "up", "", "", "up: {wait: x}", "f.yaml:1:12: up.wait"},
		{"no such verb", "up", "", "", "upp: {wait: 2}", "no such verb; did you mean up?"},
		{"a group is no verb", "up", "", "", "study: {wait: 2}", "no such verb"},
		{"no such flag", "up", "", "", "study run: {wit: 2}", "no such flag; did you mean wait?"},
		{"help is no default", "up", "", "", "up: {help: true}", "no such flag"},
		{"not a mapping", "up", "", "", "up: 7", "f.yaml:1:5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := verbs()
			cmd, _, err := root.Find(strings.Fields(tt.verb))
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.ParseFlags(strings.Fields(tt.args)); err != nil {
				t.Fatal(err)
			}
			var d Defaults
			if tt.file != "" {
				d, err = ReadDefaults(root, "f.yaml", []byte(tt.file))
			}
			if err == nil {
				err = d.Set(cmd, func(name string) string {
					if have, value, _ := strings.Cut(tt.env, "="); have == name {
						return value
					}
					return ""
				})
			}
			got := cmd.Flags().Lookup("wait").Value.String()
			if err != nil {
				got = err.Error()
			}
			if got != tt.want && (err == nil || len(tt.want) == 1 || !strings.Contains(got, tt.want)) {
				t.Errorf("have %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSlipsInTheEnvironment(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		"PROG_UP_WIAT=1":       "variable PROG_UP_WIAT: no such variable; did you mean PROG_UP_WAIT?",
		"PROG_STUDYRUN_WAIT=1": "did you mean PROG_STUDY_RUN_WAIT?",
		"PROG_CACH=/x":         "did you mean PROG_CACHE?",
		"PROG_UP_WAIT=1":       "",
		"PROG_CACHE=/x":        "",
		"PROG_CACH=":           "",
		"PROG_ELSEWHERE=1":     "",
		"OTHER_UP_WIAT=1":      "",
		"PROGRAM":              "",
	} {
		err := Slips(verbs(), []string{"HOME=/", entry}, "PROG_CACHE")
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", entry, err, want)
		}
	}
}

func FuzzReadDefaults(f *testing.F) {
	f.Add("all: {wait: 3}\nup: {wait: 2}")
	f.Add("? [a]\n: b")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ReadDefaults(verbs(), "f.yaml", []byte(text)); err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
	})
}
