// Package hosts holds the profiles of emulated hosts that come with rackless.
package hosts

import "embed"

// Profiles holds the built-in profiles, one file each, named after the profile.
//
//go:embed *.yaml
var Profiles embed.FS
