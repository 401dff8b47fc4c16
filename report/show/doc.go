// Package show holds the common parts of all reports, so that they look alike. It is pure.
package show
