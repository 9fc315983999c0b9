"""What published programs compute where they differ from their papers."""
