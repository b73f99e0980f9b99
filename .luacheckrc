std = "luajit"
max_line_length = false
exclude_files = {"build*/**", "stdlib/meta/**"}
ignore = {"211/_.*", "212/_.*", "212/self", "213/_.*", "542"}
