import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";
import "@mantine/spotlight/styles.css";
import "./theme.css";
import { localStorageColorSchemeManager, MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { setNonce } from "get-nonce";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { watchForReleases } from "./outdated";
import { nonce } from "./place";
import { router } from "./router";
import { queries } from "./session/door";
import { theme } from "./theme";

setNonce(nonce); // of the styles that lock scrolling under a dialog

watchForReleases();

const colorSchemes = localStorageColorSchemeManager({ key: "motet-color-scheme" });

const place = document.getElementById("root");
if (place === null) {
  throw new Error("The page lacks its root.");
}
createRoot(place).render(
  <StrictMode>
    <MantineProvider
      theme={theme}
      defaultColorScheme="auto"
      colorSchemeManager={colorSchemes}
      getStyleNonce={() => nonce}
    >
      <QueryClientProvider client={queries}>
        <Notifications position="top-right" aria-live="polite" />
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
