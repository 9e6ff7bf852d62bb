import { createTheme } from "@mantine/core";

export const theme = createTheme({
  primaryColor: "indigo",
  primaryShade: { light: 8, dark: 7 }, // white on them is readable
  defaultRadius: "sm",
  autoContrast: true,
  respectReducedMotion: true,
  components: {
    Badge: { defaultProps: { variant: "dot", tt: "none", miw: "max-content" } },
    Modal: { defaultProps: { closeButtonProps: { "aria-label": "Close" }, centered: false } },
  },
});
