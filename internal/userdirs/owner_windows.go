package userdirs

import "io/fs"

// ownerOf knows no user numbers on Windows. Access lists keep others out of a user's directories.
func ownerOf(fs.FileInfo) (uid int, known bool) { return 0, false }
