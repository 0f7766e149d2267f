"""What figures are made of: style, scales, panels, lines, maps, surfaces."""
