import { Button, Card, Group, Text, Title } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Confirm } from "../parts/confirm";
import { bytesText, Moment, Mono } from "../parts/figures";
import { DataTable } from "../parts/table";

type Upload = Schemas["UploadOut"];
type Rows = Parameters<typeof DataTable<Upload>>[0]["rows"];

export function percentOf({ received, bytes }: { received: number; bytes: number }): string {
  return `${Math.floor((100 * received) / Math.max(1, bytes))}\u00a0%`;
}

/** Uploads that are no version yet: the same files, chosen again, go on where they stopped. */
export function Unfinished({ tenant, rows }: { tenant: string; rows: Rows }) {
  const [ending, setEnding] = useState<Upload | null>(null);
  const client = useQueryClient();
  const giveUp = async ({ id }: Upload) => {
    await heard(
      api.DELETE("/api/v1/tenants/{tenant}/uploads/{upload_id}", {
        params: { path: { tenant, upload_id: id } },
        headers: { "tus-resumable": "1.0.0" },
      }),
    );
    await client.invalidateQueries({ queryKey: ["tenant", tenant, "uploads"] });
  };
  if (rows.data?.data.length === 0) {
    return null;
  }
  return (
    <Card withBorder component="section" aria-labelledby="unfinished">
      <Title order={2} size="h4" id="unfinished">
        Not finished
      </Title>
      <Text size="sm" c="dimmed" mb="xs">
        Choose the same files again, and they go on where they stopped.
      </Text>
      <DataTable
        caption="Uploads that are not finished, newest first"
        rows={rows}
        rowKey={(upload) => upload.id}
        cursor={undefined}
        empty={null}
        columns={[
          {
            title: "File",
            cell: (upload) => (
              <span className="figures">
                <Mono>{upload.file}</Mono>
              </span>
            ),
          },
          { title: "There", cell: (upload) => <There upload={upload} /> },
          { title: "Begun", cell: (upload) => <Moment at={upload.created_at} /> },
          { title: "Kept until", cell: (upload) => <Moment at={upload.expires_at} /> },
          {
            title: "Action",
            cell: (upload) => (
              <Button
                size="compact-sm"
                variant="default"
                onClick={() => setEnding(upload)}
                aria-label={`Give ${upload.file} up…`}
              >
                Give up…
              </Button>
            ),
          },
        ]}
      />
      {ending !== null && (
        <Confirm
          title={`Give ${ending.file} up`}
          effect={`The ${bytesText(ending.received)} that are there are deleted, and have to be sent again.`}
          action="Give up"
          onConfirm={() => giveUp(ending)}
          onClose={() => setEnding(null)}
        />
      )}
    </Card>
  );
}

function There({ upload }: { upload: Upload }) {
  return (
    <Group gap="xs" wrap="nowrap" className="figures">
      <span>{upload.finished ? "all of it" : `resume ${percentOf(upload)}`}</span>
      <Text span size="sm" c="dimmed">
        {bytesText(upload.received)} of {bytesText(upload.bytes)}
      </Text>
    </Group>
  );
}
