import { Modal, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useEffect, useState } from "react";
import { onAsking, onOtherTabs } from "./door";
import { LogInForm } from "./log-in-form";

/** Over whatever page is open when its session ends. The page stays as it is. */
export function LogInAgain() {
  const [open, setOpen] = useState(false);
  useEffect(() => onAsking(setOpen), []);
  useEffect(onOtherTabs, []);
  return (
    <Modal
      opened={open}
      onClose={() => {}}
      withCloseButton={false}
      closeOnClickOutside={false}
      closeOnEscape={false}
      title="Your session has ended"
      zIndex={1000}
    >
      <Text size="sm" mb="md">
        Log in again to go on. What is on this page stays as it is.
      </Text>
      {open && (
        <LogInForm
          returnTo="/logged-in"
          beside
          onDone={() => notifications.show({ message: "You are logged in again." })}
        />
      )}
    </Modal>
  );
}
