package userdirs

import "io/fs"

// ownerOf knows no numbers of users here: access lists keep others out of a user's directories.
func ownerOf(fs.FileInfo) (uid int, known bool) { return 0, false }
