-- Calls of Fourier transforms and windows. f is gradcheck.random.
return function(_, f)
  local one = {{args = {f{6, 2}}}, {args = {f{2, 5, 3, 2}}, attrs = {n = 4, dim = 2, norm = "ortho"}}}
  local two = {{args = {f{2, 4, 2}}}, {args = {f{3, 2, 5, 2}}, attrs = {s = {2, 6}, dim = {3, 1}, norm = "forward"}}}
  local real = {{args = {f{6}}}, {args = {f{2, 5, 3}}, attrs = {n = 7, dim = 2, norm = "ortho"}}}
  local real_two = {{args = {f{4, 5}}}, {args = {f{3, 2, 5}}, attrs = {s = {2, 6}, dim = {3, 1}, norm = "forward"}}}
  local windows = {{args = {5}}, {args = {4}, attrs = {periodic = false}}, {args = {1}}, {args = {0}}}
  local counts = {{args = {5}}, {args = {6, 0.5}}}
  local halves = {{args = {f{4, 2}}, attrs = {n = 6, dim = 1}}, {args = {f{2, 3, 2}}, attrs = {n = 5, dim = 2, doubled = true}},
                  {args = {f{2, 3, 3, 2}}, attrs = {n = 4, dim = 2, scale = 0.5}}}
  return {
    _fft_complex = {{args = {f{2, 4, 3, 2}}, attrs = {dim = 2}}, {args = {f{7, 2}}, attrs = {dim = 1, inverse = true, scale = 2}}},
    _fft_real = {{args = {f{2, 6}}, attrs = {dim = 2, doubled = true}}, {args = {f{5, 2}}, attrs = {dim = 1, scale = 0.5}}},
    _fft_half = halves,
    fft_fft = one, fft_ifft = one, fft_irfft = one, fft_rfft = real,
    fft_fft2 = two, fft_ifft2 = two, fft_irfft2 = two, fft_rfft2 = real_two,
    fft_fftn = two, fft_ifftn = two, fft_irfftn = two, fft_rfftn = real_two,
    fft_fftfreq = counts, fft_rfftfreq = counts,
    fft_fftshift = {{args = {f{5}}}, {args = {f{3, 4}, {1, 2}}}},
    fft_ifftshift = {{args = {f{5}}}, {args = {f{3, 4}, 2}}},
    hann_window = windows, hamming_window = windows, blackman_window = windows,
    stft = {
      {args = {f{12}, 4}}, {args = {f{2, 11}, 6}, attrs = {hop_length = 2, win_length = 4, window = nil, normalized = true}},
      {args = {f{9}, 4, 3, 3, f({3}, 0.5, 1)}, attrs = {center = false, onesided = false}},
    },
    istft = {
      {args = {f{3, 4, 2}, 4}}, {args = {f{2, 4, 3, 2}, 7}, attrs = {hop_length = 2, length = 9}},
      {args = {f{4, 3, 2}, 4, 1, 3, f({3}, 0.5, 1)}, attrs = {onesided = false, normalized = true}},
    },
  }
end
