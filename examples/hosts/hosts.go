// Package hosts holds the profiles of emulated hosts that come with rackless.
package hosts

import "embed"

// Profiles are the built-in profiles, one file each, called as the profile is.
//
//go:embed *.yaml
var Profiles embed.FS
