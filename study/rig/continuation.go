package rig

import (
	"os"
	"path/filepath"

	"github.com/rackless/rackless/host/tune"
)

// Continuation returns the systemd unit that continues a study after a boot. db and accel may be "".
func Continuation(binary, study, file, db, accel string, env func(string) string) (*tune.GoOn, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	// A unit starts in its own directory. --restart would remove earlier runs.
	argv := []string{binary, "study", "run", file, "--reboot"}
	if db != "" {
		argv = append(argv, "--db", db)
	}
	if accel != "" && accel != "auto" {
		argv = append(argv, "--accel", accel)
	}
	on := &tune.GoOn{Name: "rackless-study-" + study, Description: "Go on with rackless study " + study, Argv: argv,
		Dir: dir}
	// A unit lacks the user's environment.
	for _, name := range []string{"HOME", "PATH", "XDG_CACHE_HOME", "XDG_DATA_HOME", "RACKLESS_RUN", "RACKLESS_CACHE",
		"RACKLESS_DATA", "RACKLESS_STATE"} {
		if value := env(name); value != "" {
			on.Env = append(on.Env, name+"="+value)
		}
	}
	return on, nil
}
