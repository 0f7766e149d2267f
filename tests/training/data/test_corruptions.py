"""Corruptions against other libraries (Pillow, matplotlib, scipy) and plain loops."""

from __future__ import annotations

import dataclasses
import io
import itertools

import matplotlib.colors
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from training.data import corruptions
from training.data.corruptions import CORRUPTIONS, blur, corrupt, digital, noise, weather


def pictures(count, channels, height, width):
    """Smooth pictures with an edge, in whole grey levels."""
    random = np.random.default_rng(count * 1000 + channels * 100 + height + width)
    rows, columns = np.mgrid[:height, :width] / max(height, width)
    waves = random.uniform(1, 6, (count, channels, 2, 1, 1))
    values = 0.5 + 0.3 * np.sin(waves[:, :, 0] * rows + waves[:, :, 1] * columns)
    return np.round(255 * np.where(rows + columns > 0.9, 1 - 0.8 * values, values))


def random_of(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 5, 7), (3, 3, 2), (1, 1, 1)])
def test_any_shape_stays_a_picture(name, shape):
    if CORRUPTIONS[name].channels not in (None, shape[0]):
        with pytest.raises(ValueError, match=f"{name} needs images of 3 channels, got {shape[0]}"):
            corrupt(pictures(3, *shape), name, 1)
        return
    clean = pictures(3, *shape)
    kept = clean.copy()
    for severity in (1, 4, 5):
        found = corrupt(clean, name, severity)
        assert found.shape == clean.shape
        assert found.min() >= 0
        assert found.max() <= 255
        np.testing.assert_array_equal(found, np.round(found))
        np.testing.assert_array_equal(found, corrupt(clean, name, severity))
    np.testing.assert_array_equal(clean, kept)
    if shape == (3, 32, 32):
        assert not np.array_equal(found, clean)


def test_the_benchmark_has_fifteen_kinds_and_four_more():
    assert sum(not kind.extra for kind in CORRUPTIONS.values()) == 15
    assert len(CORRUPTIONS) == 19
    assert all(len(kind.parameters) == 5 for kind in CORRUPTIONS.values())
    assert set(corruptions.DEPARTURES) <= set(CORRUPTIONS)


def test_noise_depends_on_place_and_seed_only():
    clean = pictures(corruptions.BLOCK + 3, 1, 4, 4)
    whole = corrupt(clean, "gaussian_noise", 3)
    np.testing.assert_array_equal(corrupt(clean[: corruptions.BLOCK], "gaussian_noise", 3), whole[: corruptions.BLOCK])
    same = corrupt(clean[:1].repeat(corruptions.BLOCK + 1, axis=0), "gaussian_noise", 3)
    assert not np.array_equal(same[0], same[1])
    assert not np.array_equal(same[0], same[corruptions.BLOCK])
    assert not np.array_equal(corrupt(clean, "gaussian_noise", 3, seed=1), whole)


def test_levels_survive_what_changes_nothing():
    levels = np.arange(256.0).reshape(4, 1, 8, 8)
    for name in ("contrast", "elastic_transform", "zoom_blur"):
        kind, still = CORRUPTIONS[name], {"contrast": 1.0, "elastic_transform": (0, 0, 0), "zoom_blur": 1.03}[name]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(CORRUPTIONS, name, dataclasses.replace(kind, parameters=(still,)))
            np.testing.assert_array_equal(corrupt(levels, name, 1), levels)


@pytest.mark.parametrize(("severity", "scale"), [(1, 0.04), (2, 0.06), (3, 0.08), (4, 0.09), (5, 0.10)])
def test_gaussian_noise_has_its_deviation(severity, scale):
    grey = np.full((20, 1, 32, 32), 128.0)
    change = (corrupt(grey, "gaussian_noise", severity) + 0.5 - grey) / 255  # cutting loses half a level on average
    assert change.std() == pytest.approx(scale, rel=0.03)
    assert abs(change.mean()) < 5 * scale / np.sqrt(change.size)


def test_shot_and_speckle_noise_grow_with_brightness():
    for level in (0.2, 0.6):
        x = np.full((200, 1, 16, 16), level)
        shot = noise.shot_noise(x, 100, random_of())
        assert shot.mean() == pytest.approx(level, rel=0.01)
        assert shot.var() == pytest.approx(level / 100, rel=0.05)
        assert noise.speckle_noise(x, 0.2, random_of()).std() == pytest.approx(0.2 * level, rel=0.03)
    assert not noise.shot_noise(np.zeros((1, 1, 4, 4)), 50, random_of()).any()


def test_impulse_noise_is_salt_and_pepper():
    found = noise.impulse_noise(np.full((50, 3, 32, 32), 0.4), 0.07, random_of())
    hit = found != 0.4
    assert set(np.unique(found)) == {0.0, 0.4, 1.0}
    assert hit.mean() == pytest.approx(0.07, rel=0.03)
    assert found[hit].mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("lens", CORRUPTIONS["defocus_blur"].parameters)
def test_defocus_by_loops(lens):
    radius, soft = lens
    bell = np.exp(-0.5 * np.arange(-1, 2) ** 2 / soft**2)
    bell /= bell.sum()
    disk = {(i, j) for i in range(-2, 3) for j in range(-2, 3) if i * i + j * j <= radius**2}
    kernel = np.zeros((9, 9))
    for (i, j), a, b in itertools.product(disk, range(-1, 2), range(-1, 2)):
        kernel[4 + i + a, 4 + j + b] += bell[a + 1] * bell[b + 1] / len(disk)
    x = pictures(2, 1, 9, 8) / 255
    padded = np.pad(x, [(0, 0), (0, 0), (4, 4), (4, 4)], mode="reflect")  # NumPy's reflect leaves the border single
    expected = np.zeros_like(x)
    for i, j in itertools.product(range(9), range(9)):
        expected += kernel[i, j] * padded[:, :, i : i + 9, j : j + 8]
    np.testing.assert_allclose(blur.defocus_blur(x, lens, random_of()), expected, rtol=1e-12)


def test_glass_by_loops():
    """Pixel by pixel from the last to the first, as the published code goes."""
    x = pictures(2, 3, 7, 6) / 255
    sigma, reach, times = 0.4, 1, 2
    found = blur.glass_blur(x, (sigma, reach, times), random_of(5))
    random = random_of(5)
    y = ndimage.gaussian_filter(x, (0, 0, sigma, sigma), mode="nearest")
    y = np.floor(y * 255 + 1e-6) / 255
    for _ in range(times):
        down, right = random.integers(-reach, reach, (2, 2, 7 - 2, 6 - 2))
        for n, h, w in itertools.product(range(2), range(6, 1, -1), range(5, 1, -1)):
            y[n, :, h, w] = y[n, :, h + down[n, h - 2, w - 2], w + right[n, h - 2, w - 2]]
    np.testing.assert_allclose(found, ndimage.gaussian_filter(y, (0, 0, sigma, sigma), mode="nearest"), rtol=1e-12)


def test_motion_by_loops():
    x = pictures(3, 2, 6, 9) / 255
    degrees = np.array([0.0, 45.0, -90.0])
    found = blur.blur_along(x, 2, 1.5, degrees)
    weights = [np.exp(-0.5 * (k / 1.5) ** 2) for k in range(5)]
    expected = np.zeros_like(x)
    trails = ([(0, k) for k in range(5)], [(0, 0), (1, 1), (1, 1), (2, 2), (3, 3)], [(-k, 0) for k in range(5)])
    for n, trail in enumerate(trails):
        for weight, (down, right) in zip(weights, trail, strict=True):
            for h, w in itertools.product(range(6), range(9)):
                place = min(max(h + down, 0), 5), min(max(w + right, 0), 8)
                expected[n, :, h, w] += weight / sum(weights) * x[n, :, *place]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("size", [8, 31, 32])
def test_enlarging_is_scipys_zoom(size):
    x = pictures(1, 1, size, size) / 255
    for factor in (1.0, 1.05, 1.25, 2.25):
        kept = int(np.ceil(size / factor))
        top = (size - kept) // 2
        wide = ndimage.zoom(x[0, 0, top : top + kept, top : top + kept], factor, order=1)
        trim = (len(wide) - size) // 2
        expected = wide[trim : trim + size, trim : trim + size]
        np.testing.assert_allclose(blur.enlarge(x, factor)[0, 0], expected, rtol=1e-10)


def test_brightness_and_saturation_in_matplotlibs_hsv():
    x = random_of(3).uniform(0, 1, (2, 3, 6, 5))
    x[0, :, 0, 0], x[0, :, 0, 1] = 0.0, 0.5  # black, grey
    hsv = matplotlib.colors.rgb_to_hsv(x.transpose(0, 2, 3, 1))
    for parameter in CORRUPTIONS["brightness"].parameters:
        lighter = hsv.copy()
        lighter[..., 2] = np.clip(lighter[..., 2] + parameter, 0, 1)
        expected = matplotlib.colors.hsv_to_rgb(lighter).transpose(0, 3, 1, 2)
        np.testing.assert_allclose(weather.brightness(x, parameter, random_of()), expected, atol=1e-12)
    for a, b in CORRUPTIONS["saturate"].parameters:
        stronger = hsv.copy()
        stronger[..., 1] = np.clip(a * stronger[..., 1] + b, 0, 1)
        expected = matplotlib.colors.hsv_to_rgb(stronger).transpose(0, 3, 1, 2)
        np.testing.assert_allclose(digital.saturate(x, (a, b), random_of()), expected, atol=1e-12)


def test_contrast_keeps_means_and_scales_deviations():
    x = pictures(2, 3, 8, 8) / 255
    found = digital.contrast(x, 0.3, random_of())
    np.testing.assert_allclose(found.mean(axis=(2, 3)), x.mean(axis=(2, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.std(axis=(2, 3)), 0.3 * x.std(axis=(2, 3)), rtol=1e-12)


@pytest.mark.parametrize("border", ["mirror", "reflect"])
def test_sampling_is_scipys(border):
    x = random_of(1).uniform(0, 1, (2, 2, 5, 6))
    rows, columns = random_of(2).uniform(-4, 9, (2, 2, 5, 6))
    found = digital.sample_bilinear(x, rows, columns, border)
    for n, c in itertools.product(range(2), range(2)):
        expected = ndimage.map_coordinates(x[n, c], [rows[n], columns[n]], order=1, mode=border)
        np.testing.assert_allclose(found[n, c], expected, atol=1e-12)


def test_elastic_moves_three_points_where_it_says():
    columns, rows = np.meshgrid(np.arange(32.0), np.arange(32.0))
    ramps = np.stack([columns, rows])[None] / 64  # a picture that says where each pixel came from
    moved = digital.elastic_transform(ramps, (0, 0, 0.08), random_of(4)) * 64
    points = np.array([[26, 26], [26, 6], [6, 6]], dtype=float)
    target = points + random_of(4).uniform(-2.56, 2.56, (1, 3, 2))[0]
    inner = moved[0, :, 8:24, 8:24]
    assert np.abs(np.diff(inner, n=2, axis=1)).max() < 1e-9  # an affine map of a ramp is a ramp
    A = np.stack([np.diff(inner, axis=2).mean(axis=(1, 2)), np.diff(inner, axis=1).mean(axis=(1, 2))], axis=1)
    for point, where in zip(points, target, strict=True):
        np.testing.assert_allclose(inner[:, 0, 0] + A @ (where - 8), point, atol=1e-9)
    np.testing.assert_allclose(digital.elastic_transform(ramps, (0, 0, 0), random_of()), ramps, atol=1e-12)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (8, 8), (13, 10)])
def test_pixelate_is_pillows_box_filter(height, width):
    picture = pictures(1, 1, height, width)
    for severity, share in enumerate(CORRUPTIONS["pixelate"].parameters, start=1):
        image = Image.fromarray(picture[0, 0].astype(np.uint8))
        small = image.resize((int(width * share), int(height * share)), Image.Resampling.BOX)
        expected = np.asarray(small.resize((width, height), Image.Resampling.BOX), dtype=float)
        assert np.abs(corrupt(picture, "pixelate", severity)[0, 0] - expected).max() <= 1.5


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 8, 8), (3, 19, 22), (1, 13, 10)])
def test_jpeg_loses_what_pillows_loses(channels, height, width):
    """Coefficients half-way between two levels may go either way, so single pixels differ; losses do not."""
    clean = pictures(30, channels, height, width)
    for severity, quality in enumerate(CORRUPTIONS["jpeg_compression"].parameters, start=1):
        expected = []
        for picture in clean.astype(np.uint8).transpose(0, 2, 3, 1):
            file = io.BytesIO()
            Image.fromarray(picture[..., 0] if channels == 1 else picture).save(file, "JPEG", quality=quality)
            expected.append(np.asarray(Image.open(file), dtype=float).reshape(picture.shape).transpose(2, 0, 1))
        found = corrupt(clean, "jpeg_compression", severity)
        loss = np.abs(np.stack(expected) - clean).mean()
        assert np.abs(found - clean).mean() == pytest.approx(loss, rel=0.01)
        apart = np.abs(found - np.stack(expected))
        assert np.median(apart) <= (0 if channels == 1 else 1)
        assert apart.mean() < 0.2 * loss


def test_clouds_fill_their_range_and_fog_keeps_the_largest_brightness():
    cloud = weather.make_plasma(4, (16, 16), 2.0, random_of())
    np.testing.assert_array_equal(cloud.min(axis=(1, 2, 3)), 0)
    np.testing.assert_array_equal(cloud.max(axis=(1, 2, 3)), 1)
    x = pictures(3, 3, 12, 12) / 255
    foggy = weather.fog(x, (1.5, 1.75), random_of())
    assert np.all(foggy.max(axis=(1, 2, 3)) <= x.max(axis=(1, 2, 3)) + 1e-12)
    assert foggy.std() < x.std()


def test_mud_covers_and_water_lightens():
    x = pictures(8, 3, 32, 32) / 255
    mud = weather.spatter(x, CORRUPTIONS["spatter"].parameters[4], random_of())
    changed = (mud != x).any(axis=1)
    assert 0 < changed.mean() < 0.5
    full = np.isclose(mud.transpose(0, 2, 3, 1), np.array([63, 42, 20]) / 255, atol=0.2).all(axis=-1)
    assert full[changed].mean() > 0.5
    assert (weather.spatter(x, CORRUPTIONS["spatter"].parameters[2], random_of()) >= x).all()


def test_snow_and_frost_whiten_black():
    black = np.zeros((4, 3, 32, 32))
    for name in ("snow", "frost"):
        kind = CORRUPTIONS[name]
        means = [kind.apply(black, parameter, random_of()).mean() for parameter in kind.parameters]
        assert means[0] > 0
        assert means[4] > means[0]


def test_bad_words():
    with pytest.raises(ValueError, match="corruption: unknown 'fogg'; did you mean 'fog'"):
        corrupt(pictures(1, 1, 4, 4), "fogg", 1)
    with pytest.raises(ValueError, match="severity must be a whole number, between 1 and 5; got 6"):
        corrupt(pictures(1, 1, 4, 4), "fog", 6)
    with pytest.raises(ValueError, match=r"shape \(N, C, H, W\)"):
        corrupt(np.zeros((4, 4)), "fog", 1)
