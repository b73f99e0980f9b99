std = "luajit"
max_line_length = 120
exclude_files = {"build*/**", "stdlib/meta/**"}
ignore = {"212/_.*", "212/self", "213/_.*", "542"}
