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
import { hasUnsaved } from "./parts/edits";
import { nonce } from "./place";
import { router } from "./router";
import { queries } from "./session/door";
import { theme } from "./theme";

const RELOADED = "motet-reloaded";

setNonce(nonce); // of the styles that lock scrolling under a dialog

// After a release an old page may ask for a part that is gone: it loads the new one, once, and never over a form.
window.addEventListener("vite:preloadError", (event) => {
  if (!hasUnsaved() && sessionStorage.getItem(RELOADED) === null) {
    event.preventDefault();
    sessionStorage.setItem(RELOADED, "1");
    window.location.reload();
  }
});
window.setTimeout(() => sessionStorage.removeItem(RELOADED), 60_000);

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
