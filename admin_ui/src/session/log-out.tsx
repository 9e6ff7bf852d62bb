import { notifications } from "@mantine/notifications";
import { failureOf } from "../api/failure";
import { Confirm } from "../parts/confirm";
import { uiRoot } from "../place";
import { logOut } from "./door";

/** Nothing of what was shown stays in memory. */
async function leave(everywhere: boolean): Promise<void> {
  await logOut(everywhere);
  window.location.assign(`${uiRoot}/log-in`);
}

export function leaveHere(): void {
  leave(false).catch((error) => notifications.show({ color: "red", message: failureOf(error).message }));
}

export function LogOutEverywhere({ onClose }: { onClose: () => void }) {
  return (
    <Confirm
      title="Log out everywhere"
      effect="All sessions of this account end, in other browsers too, this one among them. Tokens go on."
      action="Log out"
      onConfirm={() => leave(true)}
      onClose={onClose}
    />
  );
}
