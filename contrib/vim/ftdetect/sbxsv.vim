" Units of sbxsv, their drop-ins, and the profiles. A directory NAME.app is a program of macOS, no file.
au BufRead,BufNewFile *.app setfiletype sbxsv
au BufRead,BufNewFile *.app.d/*.conf setfiletype sbxsv
