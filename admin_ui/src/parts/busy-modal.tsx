import { Modal, type ModalProps } from "@mantine/core";

/** A dialog that stays while what it sent is under way: it may answer with a secret that is shown once. */
export function BusyModal({ busy, onClose, ...rest }: ModalProps & { busy: boolean }) {
  return <Modal {...rest} onClose={() => !busy && onClose()} />;
}
